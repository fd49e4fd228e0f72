"""Pictures of the reproductions, in the style of all figures."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.summary import Summary
from experiments.paper.frame import cells_of, measured
from lazygnn.run.plotting import COLORS, drawing, legend_above

# the same in every picture: ours, the paper's system, others; lines and markers differ too, for prints without color
_OURS, _PAPER, *_REST = (COLORS[1], COLORS[0], COLORS[2], COLORS[3], COLORS[6], COLORS[4], COLORS[5])
_OTHER_LINES = (":", "-.", (0, (1, 3)), (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)))
_OTHER_MARKERS = ("o", "^", "v", "P", "X")
_GRAY = "#777777"
# the ratio of numbers from which an axis is labeled at powers of ten alone
_WIDE = 100


def styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns the color, line and marker of every system."""
    found, ours, others = dict[str, dict[str, Any]](), 0, 0
    for name in names:
        if name.startswith("ours"):
            found[name] = {"color": _OURS, "linestyle": ("-", (0, (4, 1)))[ours % 2], "marker": "Dd"[ours % 2]}
            ours += 1
        elif name.startswith("LazyGNN"):
            found[name] = {"color": _PAPER, "linestyle": "--", "marker": "s"}
        else:
            at = others % len(_REST)
            found[name] = {"color": _REST[at], "linestyle": _OTHER_LINES[at], "marker": _OTHER_MARKERS[at]}
            others += 1
    return found


def dot_of(name: str) -> dict[str, Any]:
    """Returns the color and marker of a system among many: only ours and the paper's have a color."""
    style = styles([name])[name] | {"linestyle": "none"}
    return style if name.startswith(("ours", "LazyGNN")) else style | {"color": _GRAY}


def log_axis(axis: Any, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Labels a logarithmic axis with plain numbers, at 1, 2 and 5 times powers of ten, or at others."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=subs, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def few_ticks(panel: Any) -> None:
    """Puts few ticks on the horizontal axis of a narrow panel, at short numbers."""
    from matplotlib.ticker import MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(nbins=3, steps=[1, 2, 5, 10]))


def dots(summary: Summary, path: Path, columns: Sequence[str], label: str, per_line: int = 5) -> None:
    """Draws a row of dots for every system, a panel for each graph, in lines of about the same length."""
    lines = -(-len(columns) // per_line)
    across = -(-len(columns) // lines)
    names = [row.label for row in summary.rows]
    size = (1.8 + 2 * across, lines * (0.7 + 0.2 * len(names)) + 0.2)
    with drawing(path, lines, across, size=size) as (figure, panels):
        for number, panel in enumerate(panels.flat):
            if number >= len(columns):
                panel.set_visible(False)
                continue
            for name, cell in cells_of(summary, columns[number]).items():
                panel.errorbar(cell["mean"], names.index(name), xerr=cell["deviation"], **dot_of(name))
            panel.set(title=columns[number], ylim=(len(names) - 0.5, -0.5))
            panel.set_yticks(range(len(names)), names if number % across == 0 else [""] * len(names))
            few_ticks(panel)
        figure.supxlabel(label, fontsize=9)


class Panel(NamedTuple):
    """A column of a table with its title and the label of its axis."""

    column: str
    title: str
    label: str


def log_dots(summary: Summary, path: Path, panels: Sequence[Sequence[Panel]]) -> None:
    """Draws a row of dots for every system, in lines of panels with logarithmic axes."""
    names, lines, across = [row.label for row in summary.rows], len(panels), len(panels[0])
    size = (3 + 3 * across, 0.8 + lines * (0.8 + 0.2 * len(names)))
    with drawing(path, lines, across, size=size) as (_, axes):
        for line, asked in zip(axes, panels, strict=True):
            for number, (panel, (column, title, label)) in enumerate(zip(line, asked, strict=True)):
                values = {name: cell["value"] for name, cell in cells_of(summary, column).items()}
                for name, value in values.items():
                    panel.plot(value, names.index(name), **dot_of(name))
                panel.set(title=title, xlabel=label, xscale="log", ylim=(len(names) - 0.5, -0.5))
                # more labels would run into each other
                wide = bool(values) and max(values.values()) > _WIDE * min(values.values())
                log_axis(panel.xaxis, (1.0,) if wide else (1.0, 2.0, 5.0))
                panel.set_yticks(range(len(names)), names if number == 0 else [""] * len(names))


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
    columns, looks = measured(summary), styles(series)
    with drawing(path, 1, len(columns), size=(1 + 3.4 * len(columns), 3.2)) as (figure, panels):
        for panel, column in zip(panels[0], columns, strict=True):
            cells = cells_of(summary, column)
            for name, numbers in series.items():
                points = [(x, cells[row]) for x in numbers if (row := label.format(name=name, x=x)) in cells]
                means, errors = [cell["mean"] for _, cell in points], [cell["deviation"] for _, cell in points]
                panel.errorbar([x for x, _ in points], means, yerr=errors, label=name, **looks[name])
            panel.set(title=column, xlabel=along)
            panel.set_xticks(sorted({x for numbers in series.values() for x in numbers}))
        panels[0][0].set(ylabel=unit)
        legend_above(figure, [panels[0][0]])
