"""Training curves as a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def plot_curves(curves: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Draws loss and validation score over the epochs, one line for each named log."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, log in curves.items():
        left.plot([line["epoch"] for line in log], [line["loss"] for line in log], label=name)
        scored = [line for line in log if line["scores"] and "val" in line["scores"]]
        right.plot([line["epoch"] for line in scored], [line["scores"]["val"] for line in scored], label=name)
    for axes, title in ((left, "training loss"), (right, "validation score")):
        axes.set(title=title, xlabel="epoch")
        axes.grid(alpha=0.3)
        if curves:
            axes.legend(frameon=False)
    FigureCanvasAgg(figure).print_png(path)
