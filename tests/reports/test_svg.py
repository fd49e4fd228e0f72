import math
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from lazygnn.reports.svg import Line, bar, line_figure, reliability_figure


def drawn(html: str) -> ElementTree.Element:
    figure = ElementTree.fromstring(html)
    assert figure.tag == "figure"
    return figure


def points(figure: ElementTree.Element) -> list[list[tuple[float, float]]]:
    lines = [one.attrib["points"] for one in figure.iter("polyline")]
    return [[(float(x), float(y)) for x, y in (pair.split(",") for pair in line.split())] for line in lines]


def test_a_line_goes_up_where_its_values_do() -> None:
    figure = drawn(line_figure([Line("a", [1, 2, 3], [0.5, 0.7, 0.6])], title="T", x_label="epoch", y_label="y"))
    (line,) = points(figure)
    assert line[0][0] < line[1][0] < line[2][0]
    # the vertical axis of a drawing points down
    assert line[1][1] < line[2][1] < line[0][1]
    svg = figure.find("svg")
    assert svg is not None
    assert svg.attrib["role"] == "img"
    assert svg.attrib["aria-label"] == "T: a goes from 0.5 to 0.6"
    assert figure.findtext("figcaption") == "T"
    assert figure.find("ul") is None


def test_several_lines_have_a_legend_and_colors() -> None:
    lines = [Line("a", [1, 2], [1, 2]), Line("b & c", [1, 2], [2, 1])]
    figure = drawn(line_figure(lines, title="T", x_label="x", y_label="y"))
    assert ["".join(item.itertext()) for item in figure.iter("li")] == ["a", "b & c"]
    assert [one.attrib["class"] for one in figure.iter("polyline")] == ["line c0", "line c1"]


@pytest.mark.parametrize(
    "values", [[5.0, 5.0], [0.0, 0.0], [1e-12, 2e-12], [1e-30, 2e-30], [1e-15, 1.0], [-1e9, 1e9], [1e30, 2e30]]
)
def test_ticks_surround_any_values(values: list[float]) -> None:
    figure = drawn(line_figure([Line("a", [1, 2], values)], title="T", x_label="x", y_label="y"))
    (line,) = points(figure)
    assert all(0 <= x <= 360 and 0 <= y <= 230 for x, y in line)
    assert 2 <= sum(one.attrib["class"] == "grid" for one in figure.iter("line")) <= 8


def test_points_that_are_not_finite_are_left_out_and_a_single_one_is_a_dot() -> None:
    figure = drawn(line_figure([Line("a", [1, 2, 3], [math.nan, 2.0, math.inf])], title="T", x_label="x", y_label="y"))
    assert len(list(figure.iter("circle"))) == 1
    assert not points(figure)
    assert line_figure([Line("a", [1], [math.nan]), Line("b", [], [])], title="T", x_label="x", y_label="y") == ""


def test_a_long_line_is_thinned_and_keeps_its_ends() -> None:
    values = list(range(10_000))
    (line,) = points(drawn(line_figure([Line("a", values, values)], title="T", x_label="x", y_label="y")))
    (whole,) = points(drawn(line_figure([Line("a", [0, 9999], [0, 9999])], title="T", x_label="x", y_label="y")))
    assert len(line) <= 402
    assert (line[0], line[-1]) == (whole[0], whole[-1])


def test_a_reliability_plot_has_a_bar_for_every_bin_with_nodes() -> None:
    bins: list[dict[str, Any]] = [
        {"low": 0.4, "high": 0.5, "count": 0, "probability": None, "share": None},
        {"low": 0.5, "high": 0.6, "count": 9, "probability": 0.55, "share": 0.4},
        {"low": 0.9, "high": 1.0, "count": 3, "probability": 0.97, "share": 1.0},
    ]
    figure = drawn(reliability_figure(bins, title="As predicted"))
    heights = [float(one.attrib["height"]) for one in figure.iter("rect")]
    assert heights[0] == pytest.approx(0.4 * heights[1], abs=0.2)
    svg = figure.find("svg")
    assert svg is not None
    assert svg.attrib["aria-label"] == "As predicted: 55% expected, 40% right; 97% expected, 100% right"


@pytest.mark.parametrize(("share", "width"), [(0.5, 50), (-1, 0), (7, 100)])
def test_a_bar_stays_within_its_cell(share: float, width: float) -> None:
    found = re.search(r"width:([0-9.]+)%", bar(share))
    assert found is not None
    assert float(found[1]) == width
