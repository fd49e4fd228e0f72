"""Draws the picture of the idea, in a light and a dark version: `python scripts/draw_idea.py`.

Every square is a step over all edges. Exact propagation takes ten in every pass. Lazy propagation takes two, from the
stored result of the passes before.
"""

from pathlib import Path

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLORS = {
    "light": {"text": "#1f2430", "quiet": "#5a6272", "fresh": "#3949ab", "stored": "#c5cae9", "edge": "#3949ab"},
    "dark": {"text": "#e6e8ee", "quiet": "#a9b0bf", "fresh": "#9fa8da", "stored": "#39406b", "edge": "#9fa8da"},
}
WIDTH, HEIGHT = 540, 290
COLUMN, LEFT = 182, 10  # distance between passes, and the margin
SIDE, GAP = 12, 3  # of a square
PASSES, EXACT, LAZY = 3, 10, 2
TITLE, SMALL = 19, 17  # large, since a phone shows the picture at two thirds of its size


def draw(colors: dict[str, str]) -> str:
    """Returns the picture as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, sans-serif">',
        "<title>Exact propagation takes ten steps in every pass. Lazy propagation takes two in every pass, "
        "from the stored result of the pass before, and reaches two hops farther each time.</title>",
        _text(LEFT, 24, "Exact: every pass starts over", colors["text"], TITLE, bold=True),
        *_row(52, colors, lazy=False),
        _text(LEFT, 152, "Lazy: every pass starts from the stored result", colors["text"], TITLE, bold=True),
        *_row(180, colors, lazy=True),
        *_legend(HEIGHT - 22, colors),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _row(top: int, colors: dict[str, str], *, lazy: bool) -> list[str]:
    parts = []
    for index in range(PASSES):
        left, fresh = LEFT + index * COLUMN, LAZY if lazy else EXACT
        stored = index * LAZY if lazy else 0
        squares = top + 14
        parts.append(_text(left, top, f"pass {index + 1}", colors["quiet"], SMALL))
        parts += [_square(left, squares, place, colors["stored"], colors["edge"]) for place in range(stored)]
        parts += [_square(left, squares, stored + place, colors["fresh"], colors["edge"]) for place in range(fresh)]
        label = f"{fresh} steps, {stored + fresh} hops"
        parts.append(_text(left, squares + 33, label, colors["text"], SMALL))
        if lazy and index + 1 < PASSES:
            parts.append(_arrow(left, squares, stored + fresh, colors["edge"]))
    return parts


def _arrow(left: int, top: int, squares: int, color: str) -> str:
    start, end, middle = left + squares * (SIDE + GAP) + 2, left + COLUMN - 5, top + SIDE / 2
    return (
        f'<path d="M{start} {middle}H{end - 6}" stroke="{color}" stroke-width="1.5" stroke-dasharray="4 3"/>'
        f'<path d="M{end} {middle}l-7 -4v8z" fill="{color}"/>'
    )


def _legend(top: int, colors: dict[str, str]) -> list[str]:
    return [
        _square(LEFT, top, 0, colors["fresh"], colors["edge"]),
        _text(LEFT + 20, top + 11, "step computed in this pass", colors["quiet"], SMALL),
        _square(LEFT + 266, top, 0, colors["stored"], colors["edge"]),
        _text(LEFT + 286, top + 11, "kept from earlier passes", colors["quiet"], SMALL),
    ]


def _square(left: int, top: float, place: int, fill: str, edge: str) -> str:
    x = left + place * (SIDE + GAP) + 0.5
    return f'<rect x="{x}" y="{top}" width="{SIDE}" height="{SIDE}" rx="2" fill="{fill}" stroke="{edge}"/>'


def _text(x: float, y: float, text: str, color: str, size: int, *, bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{color}"{weight}>{text}</text>'


if __name__ == "__main__":
    for theme, colors in COLORS.items():
        (IMAGES / f"idea-{theme}.svg").write_text(draw(colors))
