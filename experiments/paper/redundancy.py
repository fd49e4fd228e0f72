"""Figures 1 and 2: how much hidden features change from epoch to epoch, with and without dropout."""

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from common.summary import Cell, Column, Row, Sources, Summary
from experiments.best import Variant
from experiments.grid import Result
from experiments.paper.frame import Experiment, Plan, cells_of
from experiments.paper.pictures import log_axis
from experiments.paper.trained import train
from experiments.paper.verdict import Check, Verdict, judge
from lazygnn.config import Config
from lazygnn.run.plotting import COLORS, drawing, legend_above

METHODS = {"GCN": "gcn", "APPNP": "appnp"}
DROPOUT = {"without dropout": 0.0, "with dropout": 0.5}
SYSTEMS = {
    f"{name}, {how}": (method, {"dropout": share, "input_dropout": share})
    for name, method in METHODS.items()
    for how, share in DROPOUT.items()
}
SETTINGS: dict[str, Any] = {
    "hidden_channels": 64,
    "normalize_features": True,
    "lr": 0.01,
    "weight_decay": 5e-4,
    "decay_layers": 1,
    "epochs": 200,
    "eval_every": 200,
}
EARLY, LATE = "epochs 2 to 20", "second half"
# a change that counts as slow; two unrelated passes differ by 1.4
SLOW = {"without dropout": 0.05, "with dropout": 0.5}


def changes(config: Config) -> Result:
    """Trains a model and returns the relative change of its outputs from every epoch to the next."""
    found, previous = list[float](), list[Tensor]()

    def compare(outputs: Tensor) -> None:
        if previous:
            before = previous.pop()
            found.append(float(f"{float((outputs - before).norm() / before.norm()):.4g}"))
        previous.append(outputs.clone())

    train(config, compare)
    return {"changes": found}


def run(plan: Plan) -> Summary:
    """Trains the missing models and returns the table, of the first graph and seed 0."""
    (dataset, *_), sources, rows = plan.datasets, Sources(), list[Row]()
    for name in plan.chosen(SYSTEMS):
        method, values = SYSTEMS[name]
        config = plan.place.configure((method, SETTINGS | values), dataset, 0, variant=Variant())
        line = plan.place.measure("figures", config, partial(changes, config))
        rows.append(Row(label=name, cells=[None, None] if line is None else _cells(line, sources)))
    columns = [Column(title=title, format="{value:.3g}") for title in (EARLY, LATE)]
    return Summary(origin="", label=dataset, columns=columns, rows=rows, sources=sources.found)


def _cells(line: Result, sources: Sources) -> list[Cell | None]:
    values: Sequence[float] = line["changes"]
    late = statistics.median(values[len(values) // 2 :])
    numbers = {"seeds": 1, "sources": sources.of([line])}
    return [{"value": statistics.median(values[:19])} | numbers, {"value": late, "changes": values} | numbers]


def judge_figure(summary: Summary) -> list[Verdict]:
    """Returns the verdicts on the second half of training."""
    late = {name: cell["value"] for name, cell in cells_of(summary, LATE).items()}

    def slow(how: str) -> list[Check]:
        names = [f"{name}, {how}" for name in METHODS if f"{name}, {how}" in late]
        return [Check(name, SLOW[how] - late[name], f"{late[name]:.3g}") for name in names]

    more = [
        Check(name, late[noisy] - late[plain], f"{late[noisy]:.3g} with and {late[plain]:.3g} without")
        for name in METHODS
        if (noisy := f"{name}, with dropout") in late and (plain := f"{name}, without dropout") in late
    ]
    plain, noisy = (f"change by less than {100 * SLOW[how]:.0f} % an epoch" for how in DROPOUT)
    slowly = f"Hidden features {plain} without dropout, in the median of the second half of training"
    return [
        judge(slowly, slow("without dropout"), _LR),
        judge(f"They {noisy} with dropout, in the same median", slow("with dropout"), _REDRAWN),
        judge("They change more with dropout than without", more, "weights still change fast"),
    ]


_REDRAWN = "dropout redraws half of the units in every epoch"
_LR = "weights still change fast at this learning rate"


def draw(summary: Summary, path: Path) -> None:
    """Draws the change over the epochs, without dropout at the left and with dropout at the right."""
    cells = cells_of(summary, LATE)
    with drawing(path, 1, 2, size=(8, 3.2)) as (figure, panels):
        for panel, how in zip(panels[0], DROPOUT, strict=True):
            for name, color, style in zip(METHODS, COLORS, ("-", "--"), strict=False):
                if (cell := cells.get(f"{name}, {how}")) is not None:
                    epochs = range(2, len(cell["changes"]) + 2)
                    panel.plot(epochs, cell["changes"], label=name, color=color, linestyle=style)
            panel.set(title=how, xlabel="epoch", yscale="log")
            log_axis(panel.yaxis)
        drawn = [change for cell in cells.values() for change in cell["changes"] if change > 0]
        for panel in panels[0]:
            panel.set_ylim(0.7 * min(drawn, default=0.1), 1.4 * max(drawn, default=1.0))
        panels[0, 0].set(ylabel=f"relative change of outputs\n({summary.label})")
        legend_above(figure, [panels[0, 0]])


def figure(number: int, dataset: str) -> Experiment:
    """Returns the experiment of a figure."""
    return Experiment(
        title=f"Figure {number}: redundancy on {dataset.capitalize()}",
        about=(
            "Relative change of the outputs of the last layer from one epoch to the next, of all nodes, in training; "
            "200 epochs, 64 hidden units, learning rate 0.01, dropout 0.5 or none. Numbers are medians over epochs. "
            "The paper gives no numbers."
        ),
        time="two minutes on a laptop",
        datasets=(dataset,),
        seeds=1,
        systems=tuple(SYSTEMS),
        run=run,
        judge=judge_figure,
        draw=draw,
    )


FIGURE1, FIGURE2 = figure(1, "cora"), figure(2, "pubmed")
