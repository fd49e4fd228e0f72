"""Halos of real partitions, and the bytes that ranks with one part each send in an epoch."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.provenance import provenance
from common.summary import Cell, Column, Row, Summary
from experiments import wire
from lazygnn.data.datasets import data_root
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.partitioning import Partition, PartitionMethod, default_cache, partition

DATASETS = ("arxiv", "flickr_graph", "github_social")
RANKS = (2, 4, 8, 16, 32, 64)
ENGINES: tuple[PartitionMethod, ...] = ("metis", "kaminpar")
_MB = 1e6


@dataclass(frozen=True)
class Halo:
    """The halos of a partition.

    Attributes:
        cut: Share of the edges between parts.
        rows: Rows that one exchange sends: nodes of a part's halo, summed over all parts.
        per_node: The same per node of the graph.
    """

    cut: float
    rows: int
    per_node: float


def main(root: str | None, datasets: tuple[str, ...] = DATASETS, ranks: tuple[int, ...] = RANKS) -> Summary:
    """Returns a table with a row for every graph and number of ranks."""
    rows, source = [], [0]
    for name in datasets:
        graph = load_structure(name, root)
        outputs = graph.task.num_outputs
        per_row = (
            wire.lazy(outputs),
            wire.lazy(outputs, gradients=True),
            wire.appnp(outputs),
            wire.pipegcn(),
            wire.bns(),
        )
        for number in ranks:
            found = [
                measure(graph, partition(graph, number, method=engine, cache=default_cache())) for engine in ENGINES
            ]
            cells: list[Cell | None] = [{"value": halo.cut, "sources": source} for halo in found]
            cells += [{"value": halo.per_node, "sources": source} for halo in found]
            cells += [{"value": found[0].rows * size / _MB, "sources": source} for size in per_row]
            rows.append(Row(label=f"{name}, {number}", cells=cells))
    return Summary(
        origin="python -m experiments halo",
        label="graph, ranks",
        columns=[
            Column(title="cut, METIS", format="{value:.3f}"),
            Column(title="cut, KaMinPar", format="{value:.3f}"),
            Column(title="halo per node, METIS", format="{value:.2f}"),
            Column(title="halo per node, KaMinPar", format="{value:.2f}"),
            Column(title="lazygnn, MB", format="{value:.2f}"),
            Column(title="with halo gradients, MB", format="{value:.2f}"),
            Column(title="APPNP, 10 steps, MB", format="{value:.1f}"),
            Column(title="PipeGCN, 3 x 128, MB", format="{value:.1f}"),
            Column(title="BNS-GCN, p = 0.1, MB", format="{value:.2f}"),
        ],
        rows=rows,
        sources=[provenance()],
    )


def load_structure(name: str, root: str | None) -> Graph:
    """Loads edges and labels of an `.npz` file; features are not needed, and one of the graphs has none."""
    file = data_root(root) / f"{name}.npz"
    if not Path(file).is_file():
        raise GraphError(f"no file `{file}`; set `--root` or `LAZYGNN_DATA` to its folder")
    with np.load(file) as arrays:
        edges, y = arrays["edge_index"], arrays["y"]
    return Graph.from_edges(edges, np.ones((len(y), 1), dtype=np.float32), y, name=name)


def measure(graph: Graph, parts: Partition) -> Halo:
    """Counts the edges between parts and the rows of all halos."""
    part_of = parts.part_of().numpy()
    row, col = graph.adj.row_index().numpy(), graph.adj.col.numpy()
    crossing = part_of[row] != part_of[col]
    # a node is in the halo of a part once, however many edges lead there
    pairs = np.unique(col[crossing].astype(np.int64) * parts.num_parts + part_of[row[crossing]])
    return Halo(parts.edge_cut(graph.adj), len(pairs), len(pairs) / graph.num_nodes)
