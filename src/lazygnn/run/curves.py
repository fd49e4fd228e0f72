"""Training curves as a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lazygnn.run.plotting import COLORS, LINE_STYLES, drawing, integer_ticks, legend_above


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


def plot_comparison(curves: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], path: Path) -> None:
    """Draws validation scores over epochs and over seconds of training.

    A thin line is one log. A thick one is the mean of all logs of a name, as far as all of them reach.

    Args:
        curves: The logs of several seeds, by name.
        path: The PNG file.
    """
    with drawing(path, 1, 2, size=(8, 3.6)) as (figure, panels):
        over_epochs, over_time = panels[0]
        for index, (name, logs) in enumerate(curves.items()):
            color = COLORS[index % len(COLORS)]
            lines = [_scored(log) for log in logs]
            common = set.intersection(*(set(line) for line in lines)) if lines else set()
            for line in lines if len(lines) > 1 else []:
                thin = {"color": color, "linestyle": "-", "linewidth": 0.6, "alpha": 0.5}
                over_epochs.plot(list(line), [score for _, score in line.values()], **thin)
                over_time.plot([at for at, _ in line.values()], [score for _, score in line.values()], **thin)
            epochs = sorted(common)
            times = [fmean(line[epoch][0] for line in lines) for epoch in epochs]
            scores = [fmean(line[epoch][1] for line in lines) for epoch in epochs]
            # a line of one point is invisible
            thick: Any = {
                "color": color,
                "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
                "marker": "o" if len(epochs) == 1 else "",
                "label": name,
            }
            over_epochs.plot(epochs, scores, **thick)
            over_time.plot(times, scores, **thick)
        over_epochs.set(xlabel="epoch", ylabel="validation score")
        over_time.set(xlabel="seconds of training", ylabel="validation score")
        integer_ticks(over_epochs)
        legend_above(figure, [over_epochs])


def _scored(log: Sequence[Mapping[str, Any]]) -> dict[int, tuple[float, float]]:
    """Returns seconds of training so far and validation score of every evaluated epoch."""
    found, seconds = {}, 0.0
    for line in log:
        seconds += line["seconds"]
        if line["scores"] and "val" in line["scores"]:
            found[line["epoch"]] = (seconds, line["scores"]["val"])
    return found
