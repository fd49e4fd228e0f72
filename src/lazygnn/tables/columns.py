"""What a column holds: numbers or categories. Dates and free text are refused, with the line and a remedy."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lazygnn.errors import GraphError
from lazygnn.tables.reading import TEXT, Source, decode

# text that stands for a missing value
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "#N/A")
LONGEST_NAME = 256
_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[iI]nf(inity)?)$"
_CODE = r"^[+-]?0\d"
_DECIMAL_COMMA = r"^[+-]?\d+,\d+$"
_DATE = r"^(\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})( .*)?|\d{1,2}:\d{2}(:\d{2})?)$"
# with more rows, values that are all different are not categories
_FEW_ROWS = 20

Kind = Literal["number", "category"]


@dataclass(frozen=True, eq=False)
class Values:
    """The values of a column: text, or numbers in float64; a missing value is null.

    Attributes:
        source: The table.
        name: The column.
        array: The values.
    """

    source: Source
    name: str
    array: Any  # [N]

    @property
    def is_text(self) -> bool:
        """Returns whether the values are text."""
        return bool(self.array.type == TEXT)

    def error(self, row: int, message: str) -> GraphError:
        """Returns an error that names the line, the column and the value."""
        return GraphError(f"{self.source.place(row)}, column `{self.name}`: {show(self.array[row].as_py())} {message}")

    def known(self) -> Any:
        """Returns the values that are not missing."""
        return self.array.drop_null()

    def numbers(self) -> np.ndarray:
        """Returns the values as numbers, NaN for a missing one; refuses other text and values that are not finite."""
        array = self.array
        if self.is_text:
            wrong = first(pc.invert(matches(array, _NUMBER)))
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
        numbers = self.array
        whole = pc.all(pc.equal(numbers, pc.round(numbers))).as_py() and (pc.max(pc.abs(numbers)).as_py() or 0) < 2**53
        return pc.cast(pc.cast(numbers, pa.int64()) if whole else numbers, TEXT)


def read_values(source: Source, table: pa.Table, name: str, *, or_empty: bool = False) -> Values:
    """Returns a column as text or numbers, without surrounding spaces; refuses other types.

    Args:
        source: The table.
        table: Its columns in memory.
        name: The column.
        or_empty: Accepts a column whose values are all missing.
    """
    values = Values(source, name, _plain(source, name, decode(table.column(name))))
    if not or_empty and values.array.null_count == len(values.array):
        raise GraphError(f"{source.name}, column `{name}`: every value is missing; {_remedy(name)}")
    return values


def find_kind(values: Values, *, categorical: bool = False, numeric: bool = False, max_categories: int = 100) -> Kind:
    """Decides whether a column of features holds numbers or categories.

    Args:
        values: The column.
        categorical: Takes any values as categories.
        numeric: Takes any values as numbers.
        max_categories: Most categories.
    """
    if numeric or (not values.is_text and not categorical):
        values.numbers()
        return "number"
    texts = values.texts()
    known = texts.drop_null()
    if not categorical:
        refuse_dates(values)
        share = _share(known, _NUMBER)
        if share == 1 and not _share(known, _CODE):
            values.numbers()
            return "number"
        if 0.5 <= share < 1:
            row = first(pc.invert(matches(texts, _NUMBER)))
            raise values.error(
                int(row or 0),
                f"is not a number, but {share:.0%} of the column are; correct it, or take all as categories with "
                f"`--categorical {values.name}`",
            )
        if _share(known, _DECIMAL_COMMA) >= 0.5:
            row = first(matches(texts, _DECIMAL_COMMA))
            raise values.error(int(row or 0), "has a decimal comma; write numbers with a point")
    count = pc.count_distinct(known).as_py()
    unique = count == len(known) > _FEW_ROWS and not categorical
    if count > max_categories or unique:
        limit = "all are different" if unique else f"at most {max_categories} become categories (`--max-categories`)"
        raise values.error(
            int(first(pc.is_valid(texts)) or 0),
            f"is one of {count:,} different texts, and {limit}; {_remedy(values.name)}",
        )
    refuse_long(values, "a category")
    return "category"


def refuse_dates(values: Values) -> None:
    """Refuses a column that is mostly dates or times."""
    if values.is_text and _share(values.known(), _DATE) >= 0.5:
        row = first(matches(values.array, _DATE))
        raise values.error(int(row or 0), f"is a date; turn it into a number, such as days, or {_remedy(values.name)}")


def refuse_long(values: Values, what: str) -> None:
    """Refuses text that is too long for a name."""
    if values.is_text:
        row = first(pc.greater(pc.utf8_length(values.array), LONGEST_NAME))
        if row is not None:
            raise values.error(
                row, f"is too long for {what}, at most {LONGEST_NAME} characters; {_remedy(values.name)}"
            )


def looks_numeric(values: Values) -> bool:
    """Returns whether all known values are numbers and none is a code with a leading zero."""
    return not values.is_text or (_share(values.known(), _NUMBER) == 1 and not _share(values.known(), _CODE))


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


def _share(known: Any, pattern: str) -> float:
    return float(pc.mean(pc.cast(matches(known, pattern), pa.float64())).as_py() or 0)


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
            f"{source.name}, column `{name}` holds dates or times ({kind}); turn them into numbers, or {_remedy(name)}"
        )
    if kind not in (pa.string(), TEXT) and "string_view" not in str(kind):
        raise GraphError(f"{source.name}, column `{name}` has the type {kind}; {_remedy(name)}")
    texts = pc.utf8_trim_whitespace(pc.cast(array, TEXT))
    return pc.if_else(pc.is_in(texts, value_set=pa.array(MISSING, TEXT)), None, texts)


def _remedy(name: str) -> str:
    return f"leave it out with `--ignore {name}`"
