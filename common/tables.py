"""Tables in Markdown pages, between `<!-- table: NAME -->` and `<!-- end -->`, filled from `docs/tables/NAME.json`."""

import re
from collections.abc import Iterator
from pathlib import Path

from common.summary import TABLES, load_summary

ROOT = Path(__file__).parents[1]
_MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> Iterator[Path]:
    """Yields the pages that may contain tables."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def table_names(text: str) -> list[str]:
    """Returns the names of the tables of a page."""
    return [match["name"] for match in _MARKED.finditer(text)]


def filled(text: str, folder: Path = TABLES) -> str:
    """Returns a page with its tables rendered from their summaries."""
    return _MARKED.sub(lambda match: f"{match[1]}{load_summary(match['name'], folder).markdown()}\n{match[3]}", text)


def outdated() -> dict[Path, str]:
    """Returns the pages that differ from their summaries, with the content they should have."""
    contents = {page: page.read_text() for page in pages()}
    return {page: filled(text) for page, text in contents.items() if filled(text) != text}
