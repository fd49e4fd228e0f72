"""Figures as inline SVG: lines, and a reliability plot. Colors come from the style of the page, in both themes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

# of the drawing; the page scales it to its own width
_WIDTH, _HEIGHT = 360, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 26, 12, 44
# about as many points as a line has pixels
_MOST_POINTS = 400
NUM_COLORS = 6


@dataclass(frozen=True)
class Line:
    """The points of a line, in the order of `x`; a point that is not finite is left out."""

    name: str
    x: Sequence[float]
    y: Sequence[float]

    def points(self) -> list[tuple[float, float]]:
        """Returns the finite points."""
        return [(x, y) for x, y in zip(self.x, self.y, strict=True) if math.isfinite(x) and math.isfinite(y)]


def line_figure(lines: Sequence[Line], *, title: str, x_label: str, y_label: str) -> str:
    """Returns a figure of lines, with a legend where there are several; empty without any point."""
    drawn = [(line, points) for line in lines if (points := line.points())]
    if not drawn:
        return ""
    everything = [point for _, points in drawn for point in points]
    x_axis = _Axis.around([x for x, _ in everything])
    y_axis = _Axis.around([y for _, y in everything])
    body = [_axes(x_axis, y_axis, x_label, y_label)]
    for index, (_, points) in enumerate(drawn):
        color = f"c{index % NUM_COLORS}"
        if len(points) == 1:
            at = f'cx="{_x(x_axis, points[0][0])}" cy="{_y(y_axis, points[0][1])}"'
            body.append(f'<circle class="dot {color}" {at} r="4"/>')
        else:
            path = " ".join(f"{_x(x_axis, x)},{_y(y_axis, y)}" for x, y in _thinned(points))
            body.append(f'<polyline class="line {color}" points="{path}"/>')
    description = "; ".join(
        f"{line.name} goes from {_short(points[0][1])} to {_short(points[-1][1])}" for line, points in drawn
    )
    names = [line.name for line, _ in drawn]
    return _figure(title, description, "".join(body), names if len(names) > 1 else [])


def reliability_figure(bins: Sequence[dict[str, Any]], *, title: str) -> str:
    """Returns a bar for every bin of probabilities, as high as the share of them that is right, and the diagonal."""
    axis = _Axis(0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    body = [_axes(axis, axis, "predicted probability", "share that is right")]
    told = []
    for one in bins:
        if one["count"]:
            left, right, top = _x(axis, one["low"]), _x(axis, one["high"]), _y(axis, one["share"])
            size = f'width="{round(right - left - 2, 1)}" height="{round(_y(axis, 0.0) - top, 1)}"'
            body.append(f'<rect class="bar" x="{round(left + 1, 1)}" y="{top}" {size}/>')
            told.append(f"{one['probability']:.0%} expected, {one['share']:.0%} right")
    ends = f'x1="{_x(axis, 0.0)}" y1="{_y(axis, 0.0)}" x2="{_x(axis, 1.0)}" y2="{_y(axis, 1.0)}"'
    body.append(f'<line class="ideal" {ends}/>')
    return _figure(title, "; ".join(told), "".join(body), [])


def bar(share: float) -> str:
    """Returns a bar within a cell of a table; the number beside it says the same."""
    width = round(100 * min(max(share, 0.0), 1.0), 1)
    return f'<span class="meter" aria-hidden="true"><span style="width:{width}%"></span></span>'


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    ticks: tuple[float, ...]

    @staticmethod
    def around(values: Sequence[float]) -> "_Axis":
        """Returns an axis whose ticks are 1, 2 or 5 times a power of ten apart."""
        low, high = min(values), max(values)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
        rough = (high - low) / 4
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
        first, last = math.floor(low / step), math.ceil(high / step)
        ticks = tuple(float(f"{index * step:.12g}") for index in range(first, last + 1))
        return _Axis(ticks[0], ticks[-1], ticks)


def _x(axis: _Axis, value: float) -> float:
    return round(_LEFT + (value - axis.low) / (axis.high - axis.low) * (_WIDTH - _LEFT - _RIGHT), 1)


def _y(axis: _Axis, value: float) -> float:
    return round(_HEIGHT - _BOTTOM - (value - axis.low) / (axis.high - axis.low) * (_HEIGHT - _TOP - _BOTTOM), 1)


def _axes(x_axis: _Axis, y_axis: _Axis, x_label: str, y_label: str) -> str:
    parts = []
    for tick in y_axis.ticks:
        at = _y(y_axis, tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{at}" x2="{_WIDTH - _RIGHT}" y2="{at}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{_short(tick)}</text>')
    for tick in x_axis.ticks:
        at = _x(x_axis, tick)
        parts.append(f'<text x="{at}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{_short(tick)}</text>')
    middle, center = (_LEFT + _WIDTH - _RIGHT) / 2, (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    turned = f'transform="rotate(-90 11 {center})" text-anchor="middle"'
    parts.append(f'<text x="11" y="{center}" {turned}>{escape(y_label)}</text>')
    return "".join(parts)


def _figure(title: str, description: str, body: str, legend: Sequence[str]) -> str:
    label = escape(f"{title}: {description}" if description else title)
    items = "".join(
        f'<li><span class="key c{index % NUM_COLORS}"></span>{escape(name)}</li>' for index, name in enumerate(legend)
    )
    keys = f'<ul class="legend">{items}</ul>' if items else ""
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{body}</svg>'
        f"<figcaption>{escape(title)}</figcaption>{keys}</figure>"
    )


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns few enough points to draw, with the first and the last."""
    every = math.ceil(len(points) / _MOST_POINTS)
    return points[::every] + ([points[-1]] if (len(points) - 1) % every else [])


def _short(value: float) -> str:
    return f"{value:,.5g}" if abs(value) < 1e5 else f"{value:.3g}"
