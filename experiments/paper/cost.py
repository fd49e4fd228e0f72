"""The cost of Table 1: time and memory of an epoch of every system, on graphs of that table."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from common.measure import settle
from common.summary import Cell, Column, Row, Sources, Summary
from experiments.best import Variant
from experiments.graphs import load
from experiments.grid import Result
from experiments.paper.frame import Experiment, Plan, cells_of
from experiments.paper.measuring import GPU, TIME, UPDATES, epochs, measure, shown
from experiments.paper.pictures import Panel, log_dots
from experiments.paper.table1 import MINI, OURS_MINI, SYSTEMS
from experiments.paper.verdict import Check, Verdict, judge
from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.ops import choose_device

GAS, DEEP = "APPNP (GAS)", "GCNII (full)"
MEMORY = "MiB"
# titles of the columns of a graph, with what they show and how
UNITS = {TIME: (TIME, "{value:.3g}"), MEMORY: (GPU, "{value:,.0f}"), UPDATES: (UPDATES, "{value}")}
# seconds of measured epochs after which no further epoch of a system is begun
LIMIT = 2.0
# epochs of a few milliseconds vary
REPEATS = 5


def run(plan: Plan) -> Summary:
    """Measures what is missing, one system at a time, and returns the table."""
    names, sources = plan.chosen(SYSTEMS), Sources()
    # a quick run has epochs of its own, of which none would be left to measure
    place = replace(plan.place, also={**plan.place.also, **epochs(REPEATS)})
    rows: dict[str, list[Cell | None]] = {name: [] for name in names}
    for dataset in plan.datasets:
        graph = load(dataset, place.root)
        for name in names:
            config = place.configure(SYSTEMS[name], dataset, 0, graph, Variant())
            line = place.measure("cost", config, partial(_alone, config, graph, quick=plan.quick))
            rows[name] += _cells(line, sources)
    columns = [
        Column(title=f"{dataset}: {title}", format=form)
        for dataset in plan.datasets
        for title, (_, form) in UNITS.items()
    ]
    made = [Row(label=name, cells=cells, bold=name.startswith("ours")) for name, cells in rows.items()]
    return Summary(origin="", label="system", columns=columns, rows=made, sources=sources.found)


def _alone(config: Config, graph: Graph, *, quick: bool) -> Result:
    """Measures a system without what the last one has left in memory, which takes longer than a quick run."""
    device = choose_device(config.device)
    if device.type == "cuda" or not quick:
        settle(device)
    return measure(config, graph, limit=0.0 if quick else LIMIT)


def _cells(line: Result | None, sources: Sources) -> list[Cell | None]:
    if line is None or line["status"] != "ok":
        return [None] * len(UNITS)
    numbers = {"seeds": 1, "sources": sources.of([line])}
    found = [line[name] for name, _ in UNITS.values()]
    return [None if value is None else {"value": round(value, 7)} | numbers for value in found]


def graphs_of(summary: Summary) -> list[str]:
    """Returns the graphs of a table."""
    ending = f": {TIME}"
    return [column.title.removesuffix(ending) for column in summary.columns if column.title.endswith(ending)]


def judge_table(summary: Summary) -> list[Verdict]:
    """Returns the verdicts on the paper's system, then on ours."""

    def less(system: str, other: str, title: str) -> list[Check]:
        found = []
        for graph in graphs_of(summary):
            cells = cells_of(summary, f"{graph}: {title}")
            if {system, other} <= cells.keys():
                one, two = cells[system]["value"], cells[other]["value"]
                # shares, so that the worst graph is not the largest
                text = f"{shown(one, title)} against {shown(two, title)}"
                found.append(Check(graph, 1 - one / two, text))
        return found

    return [
        judge("LazyGNN (mini) has a shorter epoch than APPNP (GAS)", less(MINI, GAS, TIME), _HALO),
        judge("Ours (mini) has a shorter epoch than APPNP (GAS)", less(OURS_MINI, GAS, TIME), _MLP),
        judge("Ours (mini) takes less GPU memory than GCNII (full)", less(OURS_MINI, DEEP, MEMORY), _RESIDENT),
    ]


_HALO = "its MLP also runs on the halo of a batch, with gradients"
_MLP = "the MLP takes most of the time of a small batch, and it is the same in both"
_RESIDENT = "graph, features and history stay on the GPU, and outweigh what a batch takes"


def draw(summary: Summary, path: Path) -> None:
    """Draws time and memory of every system, a column of panels for each graph."""
    labels = {TIME: "seconds of an epoch", MEMORY: "peak of GPU memory (MiB)"}
    panels = [
        [Panel(f"{graph}: {title}", graph, label) for graph in graphs_of(summary)] for title, label in labels.items()
    ]
    log_dots(summary, path, panels)


EXPERIMENT = Experiment(
    title="The cost of Table 1",
    about=(
        "Median time of an epoch, peak of GPU memory with graph and features (MiB), and weight updates in an epoch, of "
        "every system of Table 1 as the [rule](concepts/depth.md) sets it. Epochs of different systems have "
        "different numbers of updates. All run without evaluation, alone on the machine. The median is over "
        f"{REPEATS} epochs after a warm-up; once these have taken {LIMIT:.0f} seconds no further one is begun, so "
        "a slow system has one. Partitioning and other work before the first epoch is not counted. Memory of a CPU "
        "is not measured."
    ),
    time="two minutes of one H200",
    datasets=("arxiv", "wordnet", "github_social"),
    seeds=1,
    systems=tuple(SYSTEMS),
    run=run,
    judge=judge_table,
    draw=draw,
)
