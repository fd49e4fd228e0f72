"""Arithmetic to ogbn-papers100M from measured constants: memory of a rank, bytes of an epoch, time on a network.

Every rank has one part and takes one step an epoch. Constants of memory are those of the arrays that the library makes;
time and memory of a step are those of `docs/tables/epoch.json`, halos those of `docs/tables/halo.json`.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from common.summary import TABLES, Cell, Column, Row, Summary, load_summary
from experiments import wire
from lazygnn.data.synthetic import block_graph
from lazygnn.history import named_histories
from lazygnn.methods import build, resolve

RANKS = (4, 8, 16, 32, 64)
# graphs of the table of halos, and how they are called here
LIKE = {"arxiv": "as arxiv", "flickr_graph": "as flickr_graph"}
GIGABITS = (10, 100, 400)
WIDTH, DEPTH = 256, 3
_GB = 1e9
# the row of the table of epochs, and what it was measured on
_MEASURED = "LazyGNN, 50 batches with a frozen halo, bfloat16"
_MEASURED_NODES, _MEASURED_PARTS, _MEASURED_WIDTH, _MEASURED_DEPTH = 2_449_029, 50, 512, 4


@dataclass(frozen=True)
class Shape:
    """Sizes of a graph: nodes, stored entries with self-loops, input features, outputs."""

    nodes: int
    entries: int
    features: int
    outputs: int


# every citation is stored in both directions
PAPERS = Shape(111_059_956, 2 * 1_615_685_872 + 111_059_956, 128, 172)


@dataclass(frozen=True)
class Constants:
    """Measured sizes and times.

    Attributes:
        entry: Bytes of a stored entry.
        node: Bytes of a node, without features and histories.
        feature: Bytes of a feature.
        history: Bytes that the histories of a node take for an output, in bfloat16.
        halo: Bytes that they take for an output of a node in the halo, in bfloat16.
        step: Bytes of a step per node, layer and unit of width.
        seconds: Seconds of computation per node and epoch.
    """

    entry: float
    node: float
    feature: float
    history: float
    halo: float
    step: float
    seconds: float


def measure_constants(folder: Path = TABLES) -> Constants:
    """Builds a small model and reads the table of epochs."""
    graph = block_graph(400, 2, degree=4, in_channels=8, num_classes=PAPERS.outputs)
    options = {"num_parts": 2, "partition": "contiguous", "history_dtype": "bfloat16"}
    built = build(resolve("lazygnn", "small", options, graph=graph), graph)
    stored = sum(history.num_bytes for history in named_histories(built.model).values()) / graph.num_nodes
    adj, masks = graph.adj, sum(mask.element_size() for mask in graph.masks.values())
    row = next(row for row in load_summary("epoch", folder).rows if row.label == _MEASURED)
    seconds, mebibytes = (_value(row.cells[index]) for index in (0, 2))
    part = _MEASURED_NODES / _MEASURED_PARTS
    return Constants(
        entry=adj.col.element_size() + adj.value.element_size(),
        node=adj.rowptr.element_size() + graph.degree.element_size() + graph.y.element_size() + masks,
        feature=4,
        history=stored / graph.task.num_outputs,
        halo=wire.lazy(graph.task.num_outputs, torch.bfloat16) / graph.task.num_outputs,
        step=mebibytes * 2**20 / (part * _MEASURED_WIDTH * _MEASURED_DEPTH),
        seconds=seconds / _MEASURED_NODES,
    )


def halo_per_node(name: str, ranks: int, folder: Path = TABLES) -> float:
    """Returns the halo rows per node of a graph in the table of halos, divided by METIS."""
    summary = load_summary("halo", folder)
    column = [column.title for column in summary.columns].index("halo per node, METIS")
    row = next(row for row in summary.rows if row.label == f"{name}, {ranks}")
    return _value(row.cells[column])


def memory_of_a_rank(shape: Shape, constants: Constants, ranks: int, halo: float) -> dict[str, float]:
    """Returns the bytes of a rank: edges and labels, features, histories with the halo, and a step."""
    nodes, entries = shape.nodes / ranks, shape.entries / ranks
    return {
        "edges and labels": entries * constants.entry + nodes * constants.node,
        "features": nodes * shape.features * constants.feature,
        "histories": nodes * shape.outputs * (constants.history + halo * constants.halo),
        "a step": nodes * WIDTH * DEPTH * constants.step,
    }


def bytes_of_an_epoch(shape: Shape, halo: float) -> dict[str, float]:
    """Returns the bytes that all ranks together send, by method."""
    rows = halo * shape.nodes
    return {
        "lazygnn": rows * wire.lazy(shape.outputs),
        "lazygnn, bfloat16": rows * wire.lazy(shape.outputs, torch.bfloat16),
        "lazygnn, int8": rows * wire.lazy(shape.outputs, torch.int8),
        "APPNP, 10 steps": rows * wire.appnp(shape.outputs),
        "PipeGCN, 3 x 128": rows * wire.pipegcn(),
        "BNS-GCN, p = 0.1": rows * wire.bns(),
    }


def seconds_on_a_network(sent: float, ranks: int, gigabits: float) -> float:
    """Returns the seconds of an exchange: every rank sends its share at this speed, and receives as much meanwhile."""
    return sent / ranks / (gigabits * _GB / 8)


def memory_table(folder: Path = TABLES) -> Summary:
    """Returns the memory of a rank in GB."""
    constants = measure_constants(folder)
    rows = []
    for ranks in RANKS:
        for name, label in LIKE.items():
            halo = halo_per_node(name, ranks, folder)
            found = memory_of_a_rank(PAPERS, constants, ranks, halo)
            values = [halo, *(size / _GB for size in (*found.values(), sum(found.values())))]
            rows.append(Row(label=f"{ranks}, {label}", cells=_cells(values)))
    titles = ["edges and labels", "features", "histories", "a step", "together"]
    columns = [Column(title="halo per node", format="{value:.2f}")]
    columns += [Column(title=title, format="{value:.1f}") for title in titles]
    return _summary("ranks, halo; GB of a rank", columns, rows, folder)


def bytes_table(folder: Path = TABLES) -> Summary:
    """Returns the bytes of an epoch in GB, and the seconds that they take beside those of computation."""
    constants = measure_constants(folder)
    rows = []
    for ranks in RANKS:
        for name, label in LIKE.items():
            found = bytes_of_an_epoch(PAPERS, halo_per_node(name, ranks, folder))
            times = [seconds_on_a_network(found["lazygnn, bfloat16"], ranks, speed) for speed in GIGABITS]
            computed = constants.seconds * PAPERS.nodes / ranks
            values = [*(size / _GB for size in found.values()), *times, computed]
            rows.append(Row(label=f"{ranks}, {label}", cells=_cells(values)))
    titles = list(bytes_of_an_epoch(PAPERS, 1.0))
    columns = [Column(title=f"{title}, GB", format="{value:.1f}") for title in titles]
    columns += [Column(title=f"bfloat16 at {speed} Gbit/s, s", format="{value:.2f}") for speed in GIGABITS]
    columns.append(Column(title="computation, s", format="{value:.2f}"))
    return _summary("ranks, halo", columns, rows, folder)


def _summary(label: str, columns: list[Column], rows: list[Row], folder: Path) -> Summary:
    measured = [load_summary(name, folder).sources[0] for name in ("halo", "epoch")]
    return Summary(origin="python -m experiments scale-out", label=label, columns=columns, rows=rows, sources=measured)


def _cells(values: list[float]) -> list[Cell | None]:
    return [{"value": value, "sources": [0, 1]} for value in values]


def _value(cell: Cell | None) -> float:
    assert cell is not None
    return float(cell["value"])
