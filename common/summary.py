"""A table of the docs as data: a small JSON file with the provenance of every number, rendered as Markdown."""

import json
import statistics
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

TABLES = Path(__file__).parents[1] / "docs" / "tables"
PROVENANCE = ("commit", "date", "machine", "python", "torch", "torch_geometric", "triton")
SCORE = "{mean:.2f} ± {deviation:.2f}"
# one seed has no deviation
ONE_SCORE = "{mean:.2f}"

Cell = dict[str, Any]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Frozen):
    """A title, and the format of the cells below it."""

    title: str
    format: str = SCORE


class Row(_Frozen):
    """A label and its cells; `None` is an empty cell."""

    label: str
    cells: list[Cell | None]
    bold: bool = False


class Summary(_Frozen):
    """A table.

    Attributes:
        origin: The command that makes it, or how its numbers were obtained.
        label: Title of the column of labels.
        sources: Commit, date, hardware and versions; cells refer to them by position, as `sources`.
    """

    origin: str
    label: str
    columns: list[Column]
    rows: list[Row]
    sources: list[dict[str, str]] = []

    def markdown(self) -> str:
        """Renders the table."""
        header = [self.label, *(column.title for column in self.columns)]
        return markdown_table(header, [self._line(row) for row in self.rows])

    def side_by_side(self, title: str, labels: Sequence[str]) -> str:
        """Renders the means of the rows with these labels as columns, with one digit; the best of a line is bold."""
        rows = {row.label: row for row in self.rows}
        lines = []
        for index, column in enumerate(self.columns):
            cells = [rows[label].cells[index] for label in labels]
            means = ["" if cell is None else f"{cell['mean']:.1f}" for cell in cells]
            best = max((mean for mean in means if mean), key=float, default=None)
            lines.append([column.title, *(f"**{mean}**" if mean == best else mean for mean in means)])
        return markdown_table([title, *labels], lines)

    def filled(self, older: "Summary", order: Sequence[str] = ()) -> "Summary":
        """Returns this table with empty cells and missing rows and columns taken from an older one.

        Args:
            older: What was known before; a table with another label is about something else and is not used.
            order: Labels in the order of their rows; rows with other labels follow.
        """
        if older.label != self.label:
            return self
        titles = dict.fromkeys(column.title for table in (older, self) for column in table.columns)
        columns = {column.title: column for table in (older, self) for column in table.columns}
        known, new, sources = older._by_place(), self._by_place(), Sources()
        bold = {row.label: row.bold for table in (older, self) for row in table.rows}

        def cell(label: str, title: str) -> Cell | None:
            for table, cells in ((self, new), (older, known)):
                if (found := cells.get((label, title))) is not None:
                    numbers = sources.of([table.sources[at] for at in found.get("sources", [])])
                    return found | {"sources": numbers} if "sources" in found else found
            return None

        rows = [
            Row(label=label, cells=[cell(label, title) for title in titles], bold=bold[label])
            for label in dict.fromkeys([*order, *bold])
            if label in bold
        ]
        # each command once, the older ones first
        commands = dict.fromkeys(f"{older.origin}; {self.origin}".split("; "))
        return Summary(
            origin="; ".join(commands),
            label=self.label,
            columns=[columns[title] for title in titles],
            rows=rows,
            sources=sources.found,
        )

    def _by_place(self) -> dict[tuple[str, str], Cell | None]:
        titles = [column.title for column in self.columns]
        return {(row.label, title): cell for row in self.rows for title, cell in zip(titles, row.cells, strict=True)}

    def _line(self, row: Row) -> list[str]:
        cells = [
            "" if cell is None else _FORMATTER.format(_format_of(column, cell), **cell)
            for column, cell in zip(self.columns, row.cells, strict=True)
        ]
        return [f"**{row.label}**" if row.bold else row.label, *cells]

    def save(self, name: str, folder: Path = TABLES) -> Path:
        """Writes `<name>.json`, one line for each row, so that changes are easy to compare."""
        content = self.model_dump(exclude_defaults=True)
        lines = [
            f" {json.dumps(key)}: {_lines(value) if isinstance(value, list) else _json(value)}"
            for key, value in content.items()
        ]
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return path


def load_summary(name: str, folder: Path = TABLES) -> Summary:
    """Reads `<name>.json`."""
    return Summary.model_validate_json((folder / f"{name}.json").read_text())


def known_summary(name: str, folder: Path = TABLES) -> Summary | None:
    """Reads `<name>.json` if there is one."""
    return load_summary(name, folder) if (folder / f"{name}.json").is_file() else None


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


class _Formatter(string.Formatter):
    """Formats unknown numbers as `-`."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return "-" if value is None else str(super().format_field(value, format_spec))


_FORMATTER = _Formatter()


class Sources:
    """Numbers the distinct provenances of results."""

    def __init__(self) -> None:
        self.found = list[dict[str, str]]()

    def of(self, results: Iterable[Mapping[str, Any]]) -> list[int]:
        """Returns the positions of the provenances of `results`, each once."""
        positions = set()
        for result in results:
            source = {name: result[name] for name in PROVENANCE if name in result}
            if source not in self.found:
                self.found.append(source)
            positions.add(self.found.index(source))
        return sorted(positions)


def score(values: Sequence[float], sources: Sequence[int]) -> Cell:
    """Returns mean and unbiased deviation in percent of scores between 0 and 1, one for each seed."""
    percent = [100 * value for value in values]
    deviation = statistics.stdev(percent) if len(percent) > 1 else 0.0
    return {
        "mean": statistics.mean(percent),
        "deviation": deviation,
        "seeds": len(percent),
        "sources": list(sources),
    }


def _format_of(column: Column, cell: Cell) -> str:
    return ONE_SCORE if column.format == SCORE and cell.get("seeds") == 1 else column.format


def _lines(values: Sequence[Any]) -> str:
    return "[\n" + ",\n".join(f"  {_json(value)}" for value in values) + "\n ]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
