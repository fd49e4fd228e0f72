"""Pieces of HTML: text is escaped here, and tables have headers and can be scrolled by keyboard."""

from collections.abc import Mapping, Sequence
from html import escape


def heading(level: int, text: str) -> str:
    """Returns a heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str, *, soft: bool = False) -> str:
    """Returns a paragraph; a soft one is in a lighter color."""
    attribute = ' class="soft"' if soft else ""
    return f"<p{attribute}>{escape(text)}</p>"


def sentences(texts: Sequence[str]) -> str:
    """Returns a list of sentences."""
    return f'<ul class="plain">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>'


def facts(values: Mapping[str, str]) -> str:
    """Returns a few names with their values, side by side."""
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in values.items())
    return f'<dl class="facts">{items}</dl>'


def table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[int] = ()) -> str:
    """Returns a table whose first column names the rows.

    Args:
        caption: Says what the table shows.
        columns: Names of the columns, as text.
        rows: Cells as HTML: what is text must be escaped by the caller.
        numbers: Columns of numbers, which are aligned on the right.
    """
    head = "".join(
        f'<th scope="col"{_number(index in numbers)}>{escape(name)}</th>' for index, name in enumerate(columns)
    )
    body = "".join(
        f'<tr><th scope="row"{_number(0 in numbers)}>{first}</th>'
        + "".join(f"<td{_number(index in numbers)}>{cell}</td>" for index, cell in enumerate(rest, 1))
        + "</tr>"
        for first, *rest in rows
    )
    content = f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return scrolled(f"<table>{content}</table>", caption)


def scrolled(content: str, label: str) -> str:
    """Returns content that scrolls sideways on a narrow screen, also by keyboard."""
    return f'<div class="scroll" role="group" tabindex="0" aria-label="{escape(label)}">{content}</div>'


def folded(summary: str, content: str) -> str:
    """Returns content that is hidden until it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def ratio(value: float | None) -> str:
    """Returns a fraction with three digits; a dash where it is not defined."""
    return "-" if value is None else f"{value:.3f}"


def number(value: float | None) -> str:
    """Returns a number with four digits; a dash where there is none."""
    if value is None:
        return "-"
    # without an exponent as long as that is legible
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _number(aligned: bool) -> str:
    return ' class="number"' if aligned else ""
