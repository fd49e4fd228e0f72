"""Time and memory of our epoch as nodes, edges, steps or parts grow, one at a time."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.contenders import contenders
from benchmarks.report import OK, RESULTS, Report, Row, choose
from benchmarks.trained import measure
from common.shapes import Shape, draw
from lazygnn.run.plotting import drawing, integer_ticks

# relative to the shape, except for steps
AXES: dict[str, tuple[float, ...]] = {
    "nodes": (0.25, 0.5, 1, 2),
    "edges": (0.08, 0.2, 0.4, 1, 2, 4),
    "steps": (1, 2, 3, 4),
    "parts": (0.2, 0.5, 1, 2, 4),
}

# field, unit and label of every axis
AXIS_LABELS = {
    "nodes": ("nodes", 1e6, "nodes (million)"),
    "edges": ("entries", 1e6, "stored entries (million)"),
    "steps": ("steps", 1, "steps per pass"),
    "parts": ("parts", 1, "parts"),
}
# field, factor and label of every drawn quantity
QUANTITIES = (("seconds", 1000, "epoch (ms)"), ("step peak MiB", 1, "peak memory of a step (MiB)"))


def main(
    shape: Shape,
    device: torch.device,
    *,
    only: Sequence[str] = (),
    contender: str = "ours",
    repeats: int = 5,
    warmup: int = 2,
    folder: Path = RESULTS,
) -> Report:
    """Measures a contender along every axis and draws a figure."""
    axes = choose(only, AXES, "axis")
    settings = choose([contender], contenders(shape, device), "contender")[contender].settings
    fields = ("axis", "nodes", "entries", "steps", "parts", "seconds", "step peak MiB", "resident MiB", "error")
    report = Report(
        f"scaling-{shape.name}",
        device,
        keys=("axis", "nodes", "entries", "steps", "parts"),
        times=("seconds",),
        columns={name: name for name in fields} | {"status": "status"},
        folder=folder,
        facts={"contender": f"{contender}: {settings}", "seconds": f"an epoch, median of {repeats}"},
    )
    for axis, factors in axes.items():
        for factor in factors:
            report.run(*_point(axis, factor, shape, contender, device, repeats, warmup))
    file = report.write()
    # including the axes of earlier runs
    plot(json.loads(file.read_text())["rows"], file.with_suffix(".png"))
    return report


def _point(
    axis: str, factor: float, base: Shape, contender: str, device: torch.device, repeats: int, warmup: int
) -> tuple[Row, Callable[[], Row]]:
    shape = {
        "nodes": lambda: replace(base, num_nodes=round(base.num_nodes * factor)),
        "edges": lambda: replace(base, degree=base.degree * factor),
        "parts": lambda: replace(base, num_parts=max(round(base.num_parts * factor), 2)),
        "steps": lambda: base,
    }[axis]()
    chosen = contenders(shape, device)[contender]
    steps = int(factor) if axis == "steps" else chosen.values["num_layers"]
    chosen = replace(chosen, values={**chosen.values, "num_layers": steps})
    entries = round(shape.num_nodes * (shape.degree + 1))
    key = {"axis": axis, "nodes": shape.num_nodes, "entries": entries, "steps": steps, "parts": shape.num_parts}

    def run() -> Row:
        graph = draw(shape, device)
        graph = graph.to("cpu") if chosen.values.get("features") == "host" else graph
        return measure(chosen, shape.recipe, graph, device, repeats, warmup)

    return key, run


def plot(rows: Sequence[Row], path: Path) -> None:
    """Draws time, and memory on a GPU, over every measured axis."""
    rows = [row for row in rows if row["status"] == OK]
    if not rows:
        return
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    # a CPU has no measure of memory
    drawn = [quantity for quantity in QUANTITIES if all(row[quantity[0]] is not None for row in rows)]
    with drawing(path, len(drawn), len(axes), size=(1 + 2.8 * len(axes), 2.5 * len(drawn))) as (_, panels):
        for line, (field, factor, title) in zip(panels, drawn, strict=True):
            line[0].set(ylabel=title)
            for panel, axis in zip(line, axes, strict=True):
                shown, (along, unit, label) = [row for row in rows if row["axis"] == axis], AXIS_LABELS[axis]
                panel.plot([row[along] / unit for row in shown], [factor * row[field] for row in shown], marker="o")
                panel.set(xlabel=label, ylim=(0, 1.1 * factor * max(row[field] for row in rows)))
                if unit == 1:
                    integer_ticks(panel)
