"""Checks before training that all ranks have the same library, the same configuration and the same graph."""

import hashlib
from pathlib import Path

import torch

from lazygnn.config import Config
from lazygnn.data.folder import map_folder, read_entries
from lazygnn.data.folder_header import HEADER
from lazygnn.distributed.group import Ranks
from lazygnn.errors import RankError
from lazygnn.ops import Csr
from lazygnn.version import VERSION

# a large array is read in this many pieces of this many entries, evenly spread
_PIECES, _PIECE = 16, 4096


def check_agreement(ranks: Ranks, config: Config, folder: Path) -> str:
    """Refuses ranks that differ from the first; returns the digest of the graph.

    Args:
        ranks: All ranks.
        config: The configuration.
        folder: The graph, as this rank sees it.
    """
    with ranks.agreeing():
        digest = folder_digest(folder)
    own = {
        **_versions(),
        "configuration": hashlib.blake2b(config.record().encode(), digest_size=8).hexdigest(),
        "content of the graph": digest,
    }
    first, *others = ranks.gather(own)
    for rank, other in enumerate(others, 1):
        for name, value in first.items():
            if other[name] != value:
                raise RankError(
                    f"rank {rank} has another {name}: {other[name]} instead of {value}; give all hosts the same",
                    shown=ranks.is_first,
                )
    return digest


def folder_digest(folder: Path) -> str:
    """Returns a digest of a graph; large arrays are sampled, so that a rank does not read all of them.

    Args:
        folder: A graph that `save_folder` wrote.
    """
    graph = map_folder(folder)
    digest = hashlib.blake2b((folder / HEADER).read_bytes(), digest_size=16)
    lengths = {"rowptr": graph.num_nodes + 1, "col": len(graph.adj.col), "value": len(graph.adj.col)}
    lengths |= {"y": graph.num_nodes} | {f"{split}_mask": graph.num_nodes for split in graph.masks}
    lengths |= {"x_value": len(graph.x.value)} if isinstance(graph.x, Csr) else {"x": graph.num_nodes}
    for name, length in lengths.items():
        piece = min(_PIECE, length)
        for start in torch.linspace(0, length - piece, _PIECES, dtype=torch.float64).long().unique().tolist():
            digest.update(read_entries(folder, name, start, start + piece).tobytes())  # type: ignore[arg-type]
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    return {"version of lazygnn": VERSION, "version of torch": torch.__version__}
