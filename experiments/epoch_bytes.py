"""Bytes that ranks with one part each send in an epoch on a prepared graph, ours beside other methods.

Both factors come from the code of a run: the rows from the shares that ranks read, the bytes of a row from the exchange
of a trainer. The tests compare their product with what runs count at the collectives.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch

from common.provenance import provenance
from common.summary import Cell, Column, Row, Summary
from experiments import wire
from lazygnn.commands.sharing import for_ranks
from lazygnn.config import Config
from lazygnn.data.folder import map_folder, save_folder
from lazygnn.data.synthetic import block_graph
from lazygnn.distributed.building import build_trainer, share_of
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.shard import open_shard
from lazygnn.methods import resolve

# method and options by label
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "lazygnn": ("lazygnn", {}),
    "lazygnn, bfloat16": ("lazygnn", {"wire": "bfloat16"}),
    "lazygnn, int8": ("lazygnn", {"wire": "int8"}),
    "lazygnn, halo gradients": ("lazygnn", {"halo_gradients": True}),
    "lazygnn-deep": ("lazygnn-deep", {}),
    "lazygnn-deep, views of 16, int8": ("lazygnn-deep", {"view_channels": 16, "wire": "int8"}),
}
_MB = 1e6
# of the graph that is built for the bytes of a row
_NODES, _PARTS = 200, 2


def main(folder: Path) -> Summary:
    """Returns a table with a row for every method.

    Args:
        folder: A graph that `lazygnn prepare --out` has written.
    """
    sent, graph = rows_of_an_exchange(folder), map_folder(folder)
    outputs = graph.task.num_outputs
    appnp, pipegcn = wire.appnp(outputs), wire.pipegcn()
    per_row: dict[str, float] = {
        label: record_bytes(config_of(label, folder), graph.in_channels, outputs) for label in OURS
    }
    per_row |= {"APPNP, 10 exact steps": appnp, "PipeGCN, 3 x 128": pipegcn, "BNS-GCN, p = 0.1": wire.bns()}
    rows = []
    for label, size in per_row.items():
        values = (sent, size, sent * size / _MB, size / appnp, size / pipegcn)
        cells: list[Cell | None] = [{"value": value, "sources": [0]} for value in values]
        rows.append(Row(label=label, cells=cells))
    return Summary(
        origin=f"python -m experiments epoch-bytes {folder.name}",
        label="method",
        columns=[
            Column(title="rows", format="{value:,}"),
            Column(title="bytes per row", format="{value:,.0f}"),
            Column(title="MB of an epoch", format="{value:,.0f}"),
            Column(title="share of APPNP", format="{value:.3f}"),
            Column(title="share of PipeGCN", format="{value:.3f}"),
        ],
        rows=rows,
        sources=[provenance()],
    )


def config_of(label: str, folder: Path, **more: Any) -> Config:
    """Returns the configuration of ours with this label, for the parts of a prepared graph; `more` sets options."""
    graph, (method, values) = map_folder(folder), OURS[label]
    assert graph.part_ptr is not None
    return resolve(method, folder.name, {"num_parts": len(graph.part_ptr) - 1} | values | more, graph=graph)


def rows_of_an_exchange(folder: Path) -> int:
    """Returns the rows that all ranks together receive in an exchange, if each of them owns one part."""
    return sum(len(part.slots) for part in open_shard(folder, Ranks()).matrix.parts)


def record_bytes(config: Config, in_channels: int, outputs: int) -> int:
    """Returns the bytes that a rank sends for a node, from a trainer on a small graph.

    Args:
        config: As for the graph that ranks train on; its number of parts does not matter.
        in_channels: Number of features of that graph.
        outputs: Number of its outputs.
    """
    graph = block_graph(_NODES, _PARTS, degree=4, in_channels=in_channels, num_classes=outputs)
    update = {"num_parts": _PARTS, "partition": "contiguous"}
    config = for_ranks(config.model_copy(update={"model": config.model.model_copy(update=update)}), graph, _PARTS)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "graph"
        save_folder(graph, folder)
        ranks = Ranks()
        trainer = build_trainer(config, share_of(config, folder, ranks), ranks, torch.device("cpu"), Path(made))
        return trainer.exchange.record_bytes
