"""Pictures of the reproductions, in the style of all figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from common.summary import Summary
from experiments.paper.frame import cells_of, measured
from lazygnn.run.plotting import COLORS, LINE_STYLES, drawing, integer_ticks, legend_above

# other systems, the paper's, and ours: told apart by shape and line too, for prints without color
_KINDS: dict[str, dict[str, str]] = {
    "ours": {"color": COLORS[1], "marker": "D", "linestyle": "-"},
    "LazyGNN": {"color": COLORS[0], "marker": "s", "linestyle": "--"},
    "": {"color": "#777777", "marker": "o", "linestyle": ":"},
}


def kind_of(label: str) -> dict[str, str]:
    """Returns the color, marker and line of a system."""
    return next(style for start, style in _KINDS.items() if label.startswith(start))


def line_of(number: int) -> dict[str, str]:
    """Returns the color and line of one of several systems."""
    return {"color": COLORS[number % len(COLORS)], "linestyle": LINE_STYLES[number % len(LINE_STYLES)]}


def dots(summary: Summary, path: Path, columns: Sequence[str], label: str, per_line: int = 5) -> None:
    """Draws a row of dots for every system, a panel for each graph."""
    lines = -(-len(columns) // per_line)
    across = min(len(columns), per_line)
    names = [row.label for row in summary.rows]
    size = (1.6 + 2.1 * across, lines * (0.9 + 0.2 * len(names)))
    with drawing(path, lines, across, size=size) as (figure, panels):
        for number, panel in enumerate(panels.flat):
            if number >= len(columns):
                panel.set_visible(False)
                continue
            for name, cell in cells_of(summary, columns[number]).items():
                style = kind_of(name) | {"linestyle": "none"}
                panel.errorbar(cell["mean"], names.index(name), xerr=cell["deviation"], **style)
            panel.set(title=columns[number], ylim=(len(names) - 0.5, -0.5))
            panel.set_yticks(range(len(names)), names if number % across == 0 else [""] * len(names))
        figure.supxlabel(label, fontsize=9)


def curves(
    summary: Summary,
    path: Path,
    series: Mapping[str, Sequence[int]],
    label: str,
    along: str,
    unit: str = "test score (%)",
) -> None:
    """Draws the score of every system over a number, a panel for each graph.

    Args:
        summary: The table.
        path: The picture.
        series: The numbers of every system.
        label: The label of a row, from `name` and `x`.
        along: What is varied.
        unit: What is measured.
    """
    columns = measured(summary)
    with drawing(path, 1, len(columns), size=(1 + 3.4 * len(columns), 3.2)) as (figure, panels):
        for panel, column in zip(panels[0], columns, strict=True):
            cells = cells_of(summary, column)
            for name, numbers in series.items():
                points = [(x, cells[row]) for x in numbers if (row := label.format(name=name, x=x)) in cells]
                means, errors = [cell["mean"] for _, cell in points], [cell["deviation"] for _, cell in points]
                panel.errorbar([x for x, _ in points], means, yerr=errors, label=name, **kind_of(name))
            panel.set(title=column, xlabel=along)
            integer_ticks(panel)
        panels[0][0].set(ylabel=unit)
        legend_above(figure, [panels[0][0]])
