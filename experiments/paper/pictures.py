"""Pictures of the reproductions, in the style of all figures."""

from collections.abc import Sequence
from pathlib import Path

from common.summary import Summary
from experiments.paper.frame import cells_of
from lazygnn.run.plotting import COLORS, drawing

# other systems, the paper's, and ours: told apart by shape too, for prints without color
_KINDS = {"ours": (COLORS[1], "D"), "LazyGNN": (COLORS[0], "s"), "": ("#777777", "o")}


def kind_of(label: str) -> tuple[str, str]:
    """Returns the color and the marker of a system."""
    return next(style for start, style in _KINDS.items() if label.startswith(start))


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
                color, marker = kind_of(name)
                at = names.index(name)
                panel.errorbar(cell["mean"], at, xerr=cell["deviation"], color=color, marker=marker, linestyle="none")
            panel.set(title=columns[number], ylim=(len(names) - 0.5, -0.5))
            panel.set_yticks(range(len(names)), names if number % across == 0 else [""] * len(names))
        figure.supxlabel(label, fontsize=9)
