"""The style of every figure: fonts, colors, grid, legend. Matplotlib is imported when a figure is drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lazygnn.files import replaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# the palette of Okabe and Ito, which is safe for color blindness; line styles help in prints without color
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LINE_STYLES = ("-", "--", "-.", "-", "--", "-.", "-")
DOTS_PER_INCH = 144

Side = Literal["left", "center", "right"]
_PLACES: Any = {side: f"outside upper {side}" for side in ("left", "center", "right")}


@contextmanager
def drawing(
    path: Path, rows: int, columns: int, *, size: tuple[float, float], share_x: bool = False
) -> Iterator[tuple["Figure", Any]]:
    """Yields a figure of `size` inches and its `rows` x `columns` panels, and writes it to `path` as PNG.

    Nothing is written if the block raises. With `share_x`, all panels have the same horizontal axis.
    """
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: Any = {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.labelsize": 9,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=COLORS) + cycler(linestyle=LINE_STYLES),
        "grid.color": "#DDDDDD",
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.6,
        "lines.markersize": 4,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "legend.handlelength": 2.6,
    }
    # ticks are made as late as in the drawing itself, so the style holds until then
    with rc_context(style):
        figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, sharex=share_x)
        with replaced(path) as unfinished:
            FigureCanvasAgg(figure).print_png(unfinished)


def legend_above(figure: "Figure", panels: Any, *, side: Side = "center", width: float = 0.96) -> None:
    """Puts one legend for `panels` above the figure, in as many columns as fit.

    Args:
        figure: A figure of `drawing`; its layout makes space for the legend.
        panels: Axes; their labels are shown, each label once.
        side: Where the legend is placed.
        width: Of the legend at most, as a share of the figure.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    handles = {label: handle for panel in panels for handle, label in zip(*_entries(panel), strict=True)}
    renderer = FigureCanvasAgg(figure).get_renderer()
    for columns in range(len(handles), 0, -1):
        legend = figure.legend(list(handles.values()), list(handles), loc=_PLACES[side], ncols=columns)
        if columns == 1 or legend.get_window_extent(renderer).width <= width * figure.bbox.width:
            return
        legend.remove()


def integer_ticks(panel: Any) -> None:
    """Puts the ticks of the horizontal axis at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def _entries(panel: Any) -> tuple[list[Any], list[str]]:
    handles, labels = panel.get_legend_handles_labels()
    return list(handles), list(labels)
