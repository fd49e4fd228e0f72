"""The values of a column as text or numbers. Errors name the line, the column and the value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lazygnn.errors import GraphError
from lazygnn.tables.reading import TEXT, Source, decode

# text that stands for a missing value
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "#N/A")
LONGEST_NAME = 256
_WHOLE = r"^([+-]?\d+)\.0+$"
# text that means the same in capital letters
BOOLEANS = ("true", "false")
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[iI]nf(inity)?)$"


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a column: text, or numbers in float64; a missing value is null.

    Attributes:
        source: The table.
        name: The column.
        array: The values.
        start: The row of the table that the first value is in.
    """

    source: Source
    name: str
    array: Any  # [N]
    start: int = 0

    @property
    def is_text(self) -> bool:
        """Returns whether the values are text."""
        return bool(self.array.type == TEXT)

    def error(self, row: int, message: str) -> GraphError:
        """Returns an error that names the line, the column and the value."""
        return value_error(self.source, self.start + row, self.name, self.array[row].as_py(), message)

    def numbers(self) -> np.ndarray:
        """Returns the values as numbers, NaN for a missing one; refuses other text and values that are not finite."""
        array = self.array
        if self.is_text:
            wrong = first(pc.invert(matches(array, NUMBER)))
            if wrong is not None:
                raise self.error(wrong, "is not a number; correct it, or leave it empty")
            array = pc.cast(array, pa.float64())
        numbers: np.ndarray = array.to_numpy().astype(np.float64)
        if np.isinf(numbers).any():
            raise self.error(int(np.isinf(numbers).argmax()), "is not finite; correct it, or leave it empty")
        return numbers

    def texts(self) -> Any:
        """Returns the values as text; whole numbers have no decimal point."""
        if self.is_text:
            return self.array
        whole = pc.and_(pc.equal(self.array, pc.round(self.array)), pc.less(pc.abs(self.array), 2.0**53))
        integers = pc.cast(pc.cast(pc.if_else(whole, self.array, None), pa.int64()), TEXT)
        return pc.if_else(whole, integers, pc.cast(self.array, TEXT))


def read_values(source: Source, table: pa.Table, name: str, *, start: int = 0, or_empty: bool = False) -> Values:
    """Returns a column as text or numbers, without surrounding spaces; refuses other types.

    Args:
        source: The table.
        table: Its columns in memory.
        name: The column.
        start: The row that the first of these rows is.
        or_empty: Accepts a column whose values are all missing.
    """
    values = Values(source, name, _plain(source, name, decode(table.column(name))), start)
    if not or_empty and values.array.null_count == len(values.array):
        raise nothing_known(source, name)
    return values


def nothing_known(source: Source, name: str) -> GraphError:
    """Returns the error for a column without any value."""
    return GraphError(f"{source.name}, column `{name}`: every value is missing; {ignoring(name)}")


def value_error(source: Source, row: int, name: str, value: object, message: str) -> GraphError:
    """Returns an error that names the line, the column and the value."""
    return GraphError(f"{source.place(row)}, column `{name}`: {show(value)} {message}")


def show(value: object) -> str:
    """Returns a value for a message: in one line, and cut if it is long."""
    return repr(f"{value[:40]}..." if isinstance(value, str) and len(value) > 40 else value)


def first(mask: Any) -> int | None:
    """Returns the first row where a mask is true; `None` if there is none."""
    row = pc.index(mask, value=True).as_py()
    return None if row < 0 else int(row)


def matches(array: Any, pattern: str) -> Any:
    """Returns which texts match a pattern, null for missing ones."""
    return pc.match_substring_regex(array, pattern)


def without_point(texts: Any) -> Any:
    """Returns whole numbers in text without the decimal point that pandas writes where values are missing."""
    return pc.replace_substring_regex(texts, _WHOLE, r"\1")


def positions(texts: Any, known: Sequence[str]) -> np.ndarray:
    """Returns the position of every text among known ones, -1 for others and for missing ones, [N].

    A text that is not known itself may be one in another spelling: `1.0` of one table is `1` of another, and `True` is
    `true`.
    """
    values = pa.array(known, TEXT)
    found = pc.index_in(texts, value_set=values)
    if found.null_count > texts.null_count:
        found = pc.coalesce(found, pc.index_in(_spelled_alike(texts), value_set=_spelled_alike(values)))
    position: np.ndarray = pc.fill_null(found, -1).to_numpy()
    return position


def _spelled_alike(texts: Any) -> Any:
    lower = pc.utf8_lower(texts)
    return pc.if_else(pc.is_in(lower, value_set=pa.array(BOOLEANS, TEXT)), lower, without_point(texts))


def _plain(source: Source, name: str, array: Any) -> Any:
    kind = array.type
    if pa.types.is_null(kind):
        return pc.cast(array, TEXT)
    if pa.types.is_boolean(kind):
        return pc.cast(pc.cast(array, pa.string()), TEXT)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = pc.cast(array, pa.float64(), safe=False)
        return pc.if_else(pc.is_nan(numbers), None, numbers)
    if pa.types.is_temporal(kind):
        raise GraphError(
            f"{source.name}, column `{name}` holds dates or times ({kind}); turn them into numbers, or {ignoring(name)}"
        )
    if kind not in (pa.string(), TEXT) and "string_view" not in str(kind):
        raise GraphError(f"{source.name}, column `{name}` has the type {kind}; {ignoring(name)}")
    texts = pc.utf8_trim_whitespace(pc.cast(array, TEXT))
    return pc.if_else(pc.is_in(texts, value_set=pa.array(MISSING, TEXT)), None, texts)


def ignoring(name: str) -> str:
    """Returns the remedy for a column that cannot be used."""
    return f"leave it out with `--ignore {name}`"
