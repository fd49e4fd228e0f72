"""The course of training on six graphs: validation over epochs and over time, and the diagnostics."""

from collections.abc import Mapping
from pathlib import Path

from experiments.compare import DIAGNOSTICS, Log, elapsed
from lazygnn.run.plotting import drawing, legend_above

FIGURE = Path("docs") / "images" / "staleness-training.png"


def draw(logs: Mapping[tuple[str, str], Log], path: Path) -> None:
    """Draws a column of panels for each graph; `logs` are by case and graph."""
    datasets = list(dict.fromkeys(dataset for _, dataset in logs))
    size = (2.1 * len(datasets), 1.9 * (2 + len(DIAGNOSTICS)) + 0.5)
    with drawing(path, 2 + len(DIAGNOSTICS), len(datasets), size=size) as (figure, panels):
        colors = {case: f"C{number}" for number, case in enumerate(dict.fromkeys(case for case, _ in logs))}
        for (case, dataset), log in logs.items():
            column, color = panels[:, datasets.index(dataset)], colors[case]
            scored = [line for line in log if line["scores"]]
            seconds = {line["epoch"]: total for line, total in zip(log, elapsed(log), strict=True)}
            values = [100 * line["scores"]["val"] for line in scored]
            column[0].plot([line["epoch"] for line in scored], values, color=color, label=case)
            column[1].plot([seconds[line["epoch"]] for line in scored], values, color=color)
            for panel, name in zip(column[2:], DIAGNOSTICS, strict=True):
                found = [line for line in log if line["laziness"] and name in line["laziness"]]
                measured = [line["laziness"][name] for line in found]
                panel.plot([line["epoch"] for line in found], measured, color=color)
        for at, dataset in enumerate(datasets):
            panels[0, at].set(title=dataset, xlabel="epoch")
            panels[1, at].set(xlabel="training time (s)")
            for panel in panels[2:, at]:
                panel.set(xlabel="epoch")
        titles = ("validation accuracy (%)", "validation accuracy (%)", *DIAGNOSTICS.values())
        for panel, title in zip(panels[:, 0], titles, strict=True):
            panel.set(ylabel=title)
        legend_above(figure, [panels[0, 0]])
