"""Runs an engine in a process of its own: Ctrl-C ends it at once, and a crash there is an error here.

The graph passes through a file, of which the process maps what it reads.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from lazygnn.errors import reason
from lazygnn.ops import Adjacency
from lazygnn.partitioning import engines
from lazygnn.partitioning.base import neighbor_blocks
from lazygnn.partitioning.engines import (
    HEADER_BYTES,
    NO_EDGE_WEIGHTS,
    NO_NODE_WEIGHTS,
    NODE_BYTES,
    NODES_IN_32_BITS,
    POINTER_BYTES,
    Engine,
)


class EngineFailure(Exception):
    """The process of an engine has ended without a result."""


def run_engine(
    engine: Engine, adj: Adjacency, num_parts: int, seed: int, weights: np.ndarray | None, folder: Path | None
) -> np.ndarray:
    """Returns the part of every node, [N] int64.

    Args:
        engine: `metis` or `kaminpar`.
        adj: The adjacency.
        num_parts: The number of parts.
        seed: The seed.
        weights: Weight of every node, [N] int64; `None` means one each.
        folder: Where the file of the graph is written; the system's folder of temporary files if it cannot be.

    Raises:
        EngineFailure: The process has ended without a result.
    """
    with _scratch(folder) as scratch:
        file, out = scratch / "graph.parhip", scratch / "parts.npy"
        words = [engine, str(file), str(out), str(num_parts), str(seed), str(os.getpid())]
        try:
            write_graph_file(adj, file, weights)
            # `-P` keeps the folder of that file, and so its modules, off the path
            done = subprocess.run(
                [sys.executable, "-P", engines.__file__, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                check=False,
            )
        except OSError as error:
            size = NODE_BYTES * len(adj.col) / 1e9
            raise EngineFailure(
                f"{reason(error)}; `{scratch.parent}` must have {size:.1f} GB for the graph: set LAZYGNN_CACHE to "
                "choose another folder"
            ) from error
        if done.returncode != 0 or not out.is_file():
            raise EngineFailure(_cause(done.returncode, done.stdout.decode(errors="replace")))
        found: np.ndarray = np.load(out, allow_pickle=False)
        return found


def write_graph_file(adj: Adjacency, file: Path, weights: np.ndarray | None = None) -> None:
    """Writes the pattern of an adjacency without its self-loops, and the weights of its nodes, in ParHIP's format."""
    num_nodes = adj.num_rows
    flags = NO_EDGE_WEIGHTS | NODES_IN_32_BITS | (NO_NODE_WEIGHTS if weights is None else 0)
    start = HEADER_BYTES + POINTER_BYTES * (num_nodes + 1)
    degrees = np.zeros(num_nodes + 1, dtype=np.int64)
    with file.open("wb") as stream:
        stream.seek(start)
        for rows, counts, neighbors in neighbor_blocks(adj):
            degrees[rows.start + 1 : rows.stop + 1] = counts
            neighbors.astype(np.uint32, copy=False).tofile(stream)
        if weights is not None:
            weights.astype(np.int64, copy=False).tofile(stream)
        stream.seek(0)
        rowptr = degrees.cumsum()
        np.array([flags, num_nodes, rowptr[-1]], dtype=np.uint64).tofile(stream)
        (start + NODE_BYTES * rowptr).tofile(stream)


@contextmanager
def _scratch(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            folder = None
    if folder is not None and not os.access(folder, os.W_OK):
        folder = None
    with tempfile.TemporaryDirectory(prefix="partition-", dir=folder) as name:
        yield Path(name)


def _cause(status: int, output: str) -> str:
    if status < 0:
        ended = f"its process was ended by {signal.Signals(-status).name}"
        return f"{ended}, often for lack of memory" if -status == signal.SIGKILL else ended
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else f"its process has ended with status {status}"
