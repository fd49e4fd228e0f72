"""The style of figures: legends are inside the figure and cover no panel."""

from pathlib import Path

import pytest
from matplotlib import rcParams

from lazygnn.run.plotting import drawing, integer_ticks, legend_above


@pytest.mark.parametrize("labels", [("lazygnn",), ("a short label", "another one", "a label that is " + "long " * 12)])
def test_a_legend_is_inside_the_figure_and_covers_no_panel(tmp_path: Path, labels: tuple[str, ...]) -> None:
    with drawing(tmp_path / "figure.png", 1, 2, size=(8, 3)) as (figure, panels):
        for label in labels:
            panels[0, 0].plot([1, 2], [3, 4], label=label)
        legend_above(figure, panels[0])
        figure.draw_without_rendering()
        (legend,) = figure.legends
        box = legend.get_window_extent()
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert box.y1 <= figure.bbox.y1
        assert all(panel.get_tightbbox().y1 <= box.y0 for panel in panels[0])
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_without_labels_has_no_legend(tmp_path: Path) -> None:
    with drawing(tmp_path / "figure.png", 1, 1, size=(3, 3)) as (figure, panels):
        legend_above(figure, panels[0])
        assert not figure.legends


def test_the_style_does_not_leak_and_a_failed_figure_is_not_written(tmp_path: Path) -> None:
    before = dict(rcParams)
    with (
        pytest.raises(ValueError, match="broken"),
        drawing(tmp_path / "figure.png", 1, 1, size=(3, 3)),
    ):
        raise ValueError("broken")
    assert dict(rcParams) == before
    assert not (tmp_path / "figure.png").exists()


def test_integer_ticks(tmp_path: Path) -> None:
    with drawing(tmp_path / "figure.png", 1, 1, size=(3, 3)) as (_, panels):
        panels[0, 0].plot([1, 3], [0, 1])
        integer_ticks(panels[0, 0])
        assert all(tick == int(tick) for tick in panels[0, 0].get_xticks())
