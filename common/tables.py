"""Tables in Markdown pages, between `<!-- table: NAME -->` and `<!-- end -->`, filled from `docs/tables/NAME.json`.

`<!-- table: NAME, TITLE: A B -->` shows the means of rows A and B alone, side by side, under TITLE and their labels.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from common.summary import TABLES, load_summary

ROOT = Path(__file__).parents[1]
_MARKED = re.compile(
    r"(<!-- table: (?P<name>[\w-]+)(?:, (?P<title>\w+): (?P<rows>[\w -]+?))? -->\n).*?(<!-- end -->)", re.DOTALL
)


def pages() -> Iterator[Path]:
    """Yields the pages that may contain tables."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def table_names(text: str) -> list[str]:
    """Returns the names of the tables of a page."""
    return [match["name"] for match in _MARKED.finditer(text)]


def filled(text: str, folder: Path = TABLES) -> str:
    """Returns a page with its tables rendered from their summaries."""

    def fill(match: re.Match[str]) -> str:
        summary = load_summary(match["name"], folder)
        rows = match["rows"]
        table = summary.markdown() if rows is None else summary.side_by_side(match["title"], rows.split())
        return f"{match[1]}{table}\n<!-- end -->"

    return _MARKED.sub(fill, text)


def outdated() -> dict[Path, str]:
    """Returns the pages that differ from their summaries, with the content they should have."""
    contents = {page: page.read_text() for page in pages()}
    return {page: filled(text) for page, text in contents.items() if filled(text) != text}
