"""Remark 4: the bytes that a partitioned run sends in an epoch, counted on real partitions.

Every worker has one part. A row of another part that is next to it is sent for every exchange, forward or backward. `C`
is the number of propagated columns, four bytes each. One full-batch step an epoch.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from common.provenance import provenance
from common.summary import Cell, Column, Row, Sources, Summary
from experiments.graphs import load
from experiments.grid import Result
from experiments.paper.frame import Experiment, Plan
from experiments.paper.pictures import log_axis, styles
from experiments.paper.verdict import Check, Verdict, judge
from lazygnn.graph import Graph
from lazygnn.partitioning import Partition, default_cache, partition
from lazygnn.run.plotting import drawing, legend_above

PARTS = (2, 4, 8, 16)
BYTES = 4
EXACT, LAZY, FROZEN = "APPNP, 10 layers", "LazyGNN, 2 layers", "ours, 2 layers"


class Exchanges(NamedTuple):
    """What a system sends for every row: exchanges forward and backward, and their columns."""

    forward: int
    backward: int
    columns: Callable[[int], int] = lambda classes: classes

    def bytes_per_row(self, classes: int) -> int:
        """Returns the bytes of a row that is next to another part."""
        return (self.forward + self.backward) * self.columns(classes) * BYTES


SYSTEMS = {
    EXACT: Exchanges(10, 10),
    # stored values of every layer but the last; gradients do not cross parts
    "APPNP (GAS), 10 layers": Exchanges(9, 0),
    # the features of the first layer are sent once, before training
    "GCN, 3 layers, 128 wide": Exchanges(2, 2, lambda _: 128),
    LAZY: Exchanges(2, 2),
    # the halo keeps its stored value in all steps
    "ours, 2 layers, halo gradients": Exchanges(1, 1),
    FROZEN: Exchanges(1, 0),
}


def halo_rows(graph: Graph, parts: Partition) -> int:
    """Counts the rows that an exchange sends: pairs of a part and a node of another part next to it."""
    part_of, row, col = parts.part_of(), graph.adj.row_index(), graph.adj.col.long()
    crossing = part_of[row] != part_of[col]
    return len(torch.unique(part_of[row[crossing]] * graph.num_nodes + col[crossing]))


def count(graph: Graph, num_parts: int) -> Result:
    """Returns the rows that an exchange sends, and what they depend on."""
    parts = partition(graph, num_parts, cache=default_cache())
    return {"rows": halo_rows(graph, parts), "nodes": graph.num_nodes, "classes": graph.task.num_outputs}


def run(plan: Plan) -> Summary:
    """Partitions the graphs and returns the table: megabytes of an epoch, all workers together."""
    names, sources, rows = plan.chosen(SYSTEMS), Sources(), list[Row]()
    for dataset in plan.datasets:
        graph = load(dataset, plan.place.root)
        for num_parts in PARTS:
            line = count(graph, num_parts)
            source = sources.of([line | provenance()])
            cells: list[Cell | None] = [{"value": line["rows"], "nodes": line["nodes"], "sources": source}]
            for name in names:
                sent = line["rows"] * SYSTEMS[name].bytes_per_row(line["classes"])
                cells.append({"value": round(sent / 1e6, 4), "sources": source})
            rows.append(Row(label=f"{dataset}, {num_parts} parts", cells=cells))
    columns = [Column(title="rows sent", format="{value:,}")]
    columns += [Column(title=name, format="{value:.1f}") for name in names]
    return Summary(origin="", label="MB of an epoch", columns=columns, rows=rows, sources=sources.found)


def values(summary: Summary) -> dict[str, dict[str, float]]:
    """Returns the megabytes by system and row."""
    titles = [column.title for column in summary.columns]
    return {
        title: {row.label: cell["value"] for row in summary.rows if (cell := row.cells[at]) is not None}
        for at, title in enumerate(titles)
        if at > 0
    }


def judge_table(summary: Summary) -> list[Verdict]:
    """Returns the verdicts: fewer bytes than another system."""
    sent = values(summary)

    def fewer(name: str, other: str) -> list[Check]:
        if name not in sent or other not in sent:
            return []
        return [
            Check(row, sent[other][row] - megabytes, f"{megabytes:.1f} MB against {sent[other][row]:.1f} MB")
            for row, megabytes in sent[name].items()
        ]

    gas = "APPNP (GAS), 10 layers"
    return [
        judge("LazyGNN sends fewer bytes than APPNP with 10 layers", fewer(LAZY, EXACT), _ROUNDS),
        judge("LazyGNN sends fewer bytes than APPNP (GAS) with 10 layers", fewer(LAZY, gas), _ROUNDS),
        judge("Ours sends fewer bytes than LazyGNN", fewer(FROZEN, LAZY), _ROUNDS),
    ]


_ROUNDS = "it sends as many rows, or wider ones"


def draw(summary: Summary, path: Path) -> None:
    """Draws the megabytes over the parts, a panel for each graph."""
    sent = values(summary)
    looks = styles(sent)
    datasets = list(dict.fromkeys(row.label.rpartition(", ")[0] for row in summary.rows))
    with drawing(path, 1, len(datasets), size=(1 + 3 * len(datasets), 3.4)) as (figure, panels):
        for panel, dataset in zip(panels[0], datasets, strict=True):
            for name, found in sent.items():
                points = [(parts, found[row]) for parts in PARTS if (row := f"{dataset}, {parts} parts") in found]
                along, megabytes = zip(*points, strict=True)
                panel.plot(along, megabytes, label=name, **looks[name])
            panel.set(title=dataset, xlabel="parts", yscale="log", xscale="log")
            panel.set_xticks(PARTS, [str(parts) for parts in PARTS])
            panel.minorticks_off()
            log_axis(panel.yaxis)
        panels[0, 0].set(ylabel="MB sent in an epoch")
        legend_above(figure, [panels[0, 0]])


EXPERIMENT = Experiment(
    title="Communication (Remark 4)",
    about=(
        "Megabytes that all workers together send in an epoch of one full-batch step, in float32, if every worker has "
        "one part of METIS. `rows sent` counts pairs of a part and a node of another part next to it. An exchange "
        "sends each of these rows once. APPNP, GCN and LazyGNN exchange rows in the forward and in the backward pass "
        "of each layer. GAS exchanges the stored outputs of each layer but the last. Ours exchanges the stored rows "
        "once, and with `halo_gradients` the stored gradients too. The sum of weight gradients is not counted; it is "
        "the same for all."
    ),
    time="two minutes on a laptop",
    datasets=("arxiv", "flickr_graph", "wordnet"),
    seeds=1,
    systems=tuple(SYSTEMS),
    run=run,
    judge=judge_table,
    draw=draw,
)
