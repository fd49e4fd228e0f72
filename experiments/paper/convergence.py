"""Convergence: validation accuracy against epochs and against time, LazyGNN beside GAS."""

from itertools import accumulate
from pathlib import Path

from common.summary import Cell, Column, Row, Sources, Summary
from experiments.best import Case, Variant
from experiments.grid import Result
from experiments.paper.frame import Experiment, Plan, cells_of
from experiments.paper.pictures import log_axis, styles
from experiments.paper.released import ABOUT, PARTS, SETTINGS, TRAINING
from experiments.paper.verdict import Check, Verdict, judge
from lazygnn.run.plotting import drawing, legend_above

# as in the recipe of GAS for ogbn-arxiv
GCN = {"hidden_channels": 256, "num_layers": 3, "norm": "batch", "dropout": 0.5}
GCNII = {"hidden_channels": 256, "num_layers": 8, "dropout": 0.5}
OFTEN = {"eval_every": 2}
SYSTEMS: dict[str, Case] = {
    "GCN (GAS)": ("gcn-gas", TRAINING | PARTS | GCN | OFTEN),
    "GCNII (GAS)": ("gcnii-gas", TRAINING | PARTS | GCNII | OFTEN),
    "APPNP (GAS)": ("appnp-gas", SETTINGS | OFTEN | {"num_layers": 10}),
    "LazyGNN": ("lazygnn-paper", SETTINGS | OFTEN | {"num_layers": 2}),
    "ours": ("lazygnn", SETTINGS | OFTEN | {"num_layers": 2}),
}
LAYERED, SAME = ("GCN (GAS)", "GCNII (GAS)"), "APPNP (GAS)"
BEST, EPOCHS, SECONDS = "best validation", "epochs to within a point", "seconds to within a point"
# times as many epochs as another system that still count as comparable
COMPARABLE = 1.5


def run(plan: Plan) -> Summary:
    """Trains the missing runs, one at a time, and returns the table of the first graph and seed 0."""
    (dataset, *_), names, sources = plan.datasets, plan.chosen(SYSTEMS), Sources()
    configs = [plan.place.configure(SYSTEMS[name], dataset, 0, variant=Variant()) for name in names]
    lines = plan.place.run("convergence", configs, log="all", alone=True)
    rows = [
        Row(label=name, cells=[None] * 3 if line is None else _cells(line, sources), bold=name == "ours")
        for name, line in zip(names, lines, strict=True)
    ]
    formats = {BEST: "{value:.2f}", EPOCHS: "{value:.0f}", SECONDS: "{value:.2f}"}
    columns = [Column(title=title, format=form) for title, form in formats.items()]
    return Summary(origin="", label=dataset, columns=columns, rows=rows, sources=sources.found)


def _cells(line: Result, sources: Sources) -> list[Cell | None]:
    times = list(accumulate(entry["seconds"] for entry in line["log"]))
    curve = [
        [entry["epoch"], round(time, 3), round(100 * entry["scores"]["val"], 2)]
        for entry, time in zip(line["log"], times, strict=True)
        if entry["scores"]
    ]
    best = max(score for _, _, score in curve)
    epoch, seconds, _ = next(point for point in curve if point[2] >= best - 1)
    numbers = {"seeds": 1, "sources": sources.of([line])}
    return [{"value": best, "curve": curve} | numbers, {"value": epoch} | numbers, {"value": seconds} | numbers]


def judge_table(summary: Summary) -> list[Verdict]:
    """Returns the verdicts on the epochs that systems take to come within a point of their best validation score."""
    epochs = {name: cell["value"] for name, cell in cells_of(summary, EPOCHS).items()}

    def comparable(name: str, others: tuple[str, ...], factor: float) -> list[Check]:
        return [
            Check(
                other, factor * epochs[other] - epochs[name], f"{epochs[name]:.0f} epochs against {epochs[other]:.0f}"
            )
            for other in others
            if name in epochs and other in epochs
        ]

    claim = f"at most {COMPARABLE} times the epochs of GCN (GAS) and GCNII (GAS)"
    return [
        judge(f"LazyGNN takes {claim}", comparable("LazyGNN", LAYERED, COMPARABLE), _NOISE),
        judge("LazyGNN takes no more epochs than APPNP (GAS)", comparable("LazyGNN", (SAME,), 1.0), _NOISE),
        judge(f"Ours takes {claim}", comparable("ours", LAYERED, COMPARABLE), _LAYERS),
        judge("Ours takes no more epochs than APPNP (GAS)", comparable("ours", (SAME,), 1.0), _LAYERS),
    ]


_NOISE = "half of every start value is fresh, so that outputs vary from epoch to epoch"
_LAYERS = "its best score comes later or is higher, and the epochs are counted up to that"


def draw(summary: Summary, path: Path) -> None:
    """Draws validation over epochs at the left and over time at the right."""
    found = cells_of(summary, BEST)
    looks = styles(found)
    with drawing(path, 1, 2, size=(8.4, 3.4)) as (figure, panels):
        for name, cell in found.items():
            look = looks[name] | {"markevery": max(len(cell["curve"]) // 8, 1)}
            for panel, at in zip(panels[0], (0, 1), strict=True):
                points = [point for point in cell["curve"] if point[at] > 0]
                values = [point[2] for point in points]
                panel.plot([point[at] for point in points], values, label=name, **look)
        panels[0, 0].set(xlabel="epoch", ylabel=f"validation accuracy (%)\n({summary.label})")
        panels[0, 1].set(xlabel="training time (s)", xscale="log")
        log_axis(panels[0, 1].xaxis)
        best = max((cell["value"] for cell in found.values()), default=100)
        for panel in panels[0]:
            panel.set_ylim(best - 15, best + 1)
        legend_above(figure, [panels[0, 0]])


EXPERIMENT = Experiment(
    title="Convergence",
    about=(
        f"Validation accuracy against epochs and against training time. {ABOUT} GCN and GCNII have the widths and "
        "depths of GAS, 256 wide with 3 and 8 layers. Runs are alone on the machine."
    ),
    time="a minute of one H200",
    datasets=("arxiv",),
    seeds=1,
    systems=tuple(SYSTEMS),
    run=run,
    judge=judge_table,
    draw=draw,
)
