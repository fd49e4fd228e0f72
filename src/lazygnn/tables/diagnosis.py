"""The layout of a CSV file, and the line and the reason where it cannot be read.

The scan is in plain Python. It reads the header, and the whole file only to explain an error.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lazygnn.errors import GraphError

DELIMITERS = (",", "\t", ";", "|")
_LONGEST_HEADER = 2**20
# byte order marks
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Layout:
    """Columns and delimiter of a CSV file.

    Attributes:
        columns: The names in the header.
        delimiter: The character between two values.
        header_line: The line of the header; the lines before it are empty.
        is_header_only: Whether nothing follows the header.
    """

    columns: tuple[str, ...]
    delimiter: str
    header_line: int
    is_header_only: bool


@dataclass(frozen=True)
class Record:
    """A record of a CSV file: the line where it starts, its number of values, and whether its quotes are closed."""

    line: int
    num_values: int
    length: int
    closed: bool = True


def read_layout(path: Path) -> Layout:
    """Reads the header of a file; refuses a file that is empty or not text in UTF-8."""
    with path.open("rb") as file:
        start = file.read(_LONGEST_HEADER)
    if start[:2] in _UTF_16:
        raise GraphError(f"`{path}`, line 1: the file is in UTF-16; save it as UTF-8")
    if b"\0" in start:
        line = start[: start.index(b"\0")].count(b"\n") + 1
        raise GraphError(f"`{path}`, line {line}: the file holds a null character; save it as plain text in UTF-8")
    try:
        with path.open(encoding="utf-8-sig") as lines:
            text = _first_record(lines.read(_LONGEST_HEADER))
    except UnicodeDecodeError:
        _check_encoding(path)
        raise
    if not text.strip():
        raise GraphError(f"`{path}` is empty; give a table with a header")
    counts = {delimiter: _unquoted(text).count(delimiter) for delimiter in DELIMITERS}
    # of equal counts the first wins
    delimiter = max(counts, key=lambda one: counts[one])
    columns = tuple(value.strip() for value in _values(text, delimiter))
    records = _records(path, delimiter)
    header = next(records)
    if not header.closed:
        raise GraphError(f"`{path}`, line {header.line}: a quote in the header is not closed; close or double it")
    return Layout(columns, delimiter, header.line, is_header_only=next(records, None) is None)


def line_of(path: Path, layout: Layout, record: int) -> int:
    """Returns the line where a record starts; the header is record 0."""
    for number, found in enumerate(_records(path, layout.delimiter)):
        if number == record:
            return found.line
    raise GraphError(f"`{path}` has changed while it was read; import it again")


def check_quotes(path: Path, layout: Layout) -> None:
    """Refuses a file whose last quote is not closed: all that follows it would be one value."""
    for record in _records(path, layout.delimiter):
        if not record.closed:
            raise GraphError(f"`{path}`, line {record.line}: a quote is not closed; close or double it")


def explain(path: Path, layout: Layout, error: Exception, longest: int) -> GraphError:
    """Returns the error for a file that Arrow refuses, with the line and the remedy.

    Args:
        path: The file.
        layout: Its layout.
        error: The error of Arrow.
        longest: The most bytes of a record.
    """
    try:
        _check_encoding(path)
    except GraphError as found:
        return found
    wanted = len(layout.columns)
    for record in _records(path, layout.delimiter):
        if not record.closed:
            return GraphError(f"`{path}`, line {record.line}: a quote is not closed; close or double it")
        if record.length > longest // 2:
            return GraphError(
                f"`{path}`, line {record.line}: the row has {record.length:,} characters, at most {longest // 2:,}; "
                "shorten it"
            )
        if record.num_values != wanted:
            return GraphError(
                f"`{path}`, line {record.line}: the row has {record.num_values} values for {wanted} columns; "
                f"the last column is `{layout.columns[-1]}`; complete the row, or quote values with a delimiter"
            )
    return GraphError(f"`{path}` cannot be read as CSV ({error}); write it again")


def _check_encoding(path: Path) -> None:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                column = line[: error.start].count(b",") + 1
                raise GraphError(
                    f"`{path}`, line {number}, near column {column}: {line[error.start : error.start + 4]!r} is not "
                    "UTF-8; save the file as UTF-8"
                ) from None


def _records(path: Path, delimiter: str) -> Iterator[Record]:
    """Yields the records as Arrow splits them: a quote counts at the start of a value only; empty lines are skipped."""
    start, text = 0, ""
    # a lone carriage return ends a line, too
    with path.open(encoding="utf-8-sig", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not text and line == "\n":
                continue
            start = start if text else number
            text += line
            if '"' not in text or not _is_open(text, delimiter):
                yield Record(start, len(_values(text.rstrip("\n"), delimiter)), len(text))
                text = ""
    if text:
        yield Record(start, len(_values(text, delimiter)), len(text), closed=False)


def _is_open(text: str, delimiter: str) -> bool:
    """Returns whether text ends inside quotes."""
    return _split(text, delimiter)[1]


def _values(text: str, delimiter: str) -> list[str]:
    return text.split(delimiter) if '"' not in text else _split(text, delimiter)[0]


def _split(text: str, delimiter: str) -> tuple[list[str], bool]:
    values, quoted, position = [""], False, 0
    special = re.compile(f'["{re.escape(delimiter)}]')
    while (found := special.search(text, position)) is not None:
        values[-1] += text[position : found.start()]
        position = found.end()
        if found[0] == delimiter and not quoted:
            values.append("")
        elif found[0] == '"' and quoted and text[position : position + 1] == '"':
            values[-1] += '"'
            position += 1
        elif found[0] == '"' and (quoted or not values[-1]):
            quoted = not quoted
        else:
            values[-1] += found[0]
    values[-1] += text[position:]
    return values, quoted


def _first_record(text: str) -> str:
    lines = text.lstrip("\n").split("\n")
    record = lines[0]
    for line in lines[1:]:
        if record.count('"') % 2 == 0:
            break
        record += "\n" + line
    return record


def _unquoted(text: str) -> str:
    return re.sub(r'"[^"]*"', "", text)
