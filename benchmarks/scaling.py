"""How time and memory of our epoch grow with nodes, edges, steps and parts, one of them at a time."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.contenders import contenders
from benchmarks.report import OK, RESULTS, Report, Row, choose
from benchmarks.shapes import Shape, draw
from benchmarks.trained import measure

# relative to the shape, but for steps
AXES: dict[str, tuple[float, ...]] = {
    "nodes": (0.25, 0.5, 1, 2),
    "edges": (0.08, 0.2, 0.4, 1, 2, 4),
    "steps": (1, 2, 3, 4),
    "parts": (0.2, 0.5, 1, 2, 4),
}


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
    """Measures a contender along every axis and draws a picture."""
    axes = choose(only, AXES, "axis")
    settings = choose([contender], contenders(shape, device), "contender")[contender].settings
    fields = ("axis", "nodes", "entries", "steps", "parts", "seconds", "step peak MiB", "resident MiB", "error")
    report = Report(
        f"scaling-{shape.name}",
        device,
        keys=("axis", "nodes", "entries", "steps", "parts"),
        times=("seconds",),
        columns={name: name for name in fields} | {"answer": "status"},
        folder=folder,
        facts={"contender": f"{contender}: {settings}", "seconds": f"an epoch, median of {repeats}"},
    )
    for axis, factors in axes.items():
        for factor in factors:
            report.run(*_point(axis, factor, shape, contender, device, repeats, warmup))
    file = report.write()
    # axes of earlier runs included
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
    """Time and memory over every axis that was measured."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fields = {"nodes": "nodes", "edges": "entries", "steps": "steps", "parts": "parts"}
    axes_measured = list(dict.fromkeys(row["axis"] for row in rows))
    figure = Figure(figsize=(3.2 * len(axes_measured), 5.5), layout="constrained")
    panels: Any = figure.subplots(2, len(axes_measured), squeeze=False)
    for place, axis in enumerate(axes_measured):
        good = [row for row in rows if row["axis"] == axis and row["status"] == OK]
        for panel, field in zip(panels[:, place], ("seconds", "step peak MiB"), strict=True):
            panel.plot([row[fields[axis]] for row in good], [row[field] for row in good], marker="o")
            panel.set(xlabel="stored entries" if axis == "edges" else axis, ylabel=field)
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.3)
    FigureCanvasAgg(figure).print_png(path)
