"""Training curves as a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lazygnn.run.plotting import drawing, integer_ticks, legend_above


def plot_curves(curves: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Draws training loss and validation score over the epochs, one line for each named log."""
    with drawing(path, 1, 2, size=(8, 3.2), share_x=True) as (figure, panels):
        loss, score = panels[0]
        for name, log in curves.items():
            # a line of one point is invisible
            marker = "o" if len(log) == 1 else ""
            loss.plot([line["epoch"] for line in log], [line["loss"] for line in log], marker=marker, label=name)
            scored = [line for line in log if line["scores"] and "val" in line["scores"]]
            score.plot([line["epoch"] for line in scored], [line["scores"]["val"] for line in scored], marker="o")
        loss.set(xlabel="epoch", ylabel="training loss")
        score.set(xlabel="epoch", ylabel="validation score")
        integer_ticks(loss)
        legend_above(figure, [loss])
