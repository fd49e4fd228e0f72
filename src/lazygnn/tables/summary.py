"""What a column holds, from one batch of rows after the other: numbers or categories.

Dates and free text are refused, with the line and a remedy.
"""

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lazygnn.errors import GraphError
from lazygnn.tables.columns import LONGEST_NAME, NUMBER, Values, first, ignoring, matches, nothing_known, value_error
from lazygnn.tables.reading import Source

_PATTERNS = {
    "number": NUMBER,
    # a number with a leading zero
    "code": r"^[+-]?0\d",
    "comma": r"^[+-]?\d+,\d+$",
    "date": r"^(\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})( .*)?|\d{1,2}:\d{2}(:\d{2})?)$",
}
# with more rows, values that are all different are not categories
_FEW_ROWS = 20
# different texts that are counted; of more, it is only known that they are more
_MOST_COUNTED = 10_000

Kind = Literal["number", "category"]


class Summary:
    """What is known of a column after some of its rows.

    Args:
        source: The table.
        name: The column.
        categorical: Takes any values as categories.
        numeric: Takes any values as numbers.
        max_categories: Most categories.

    Attributes:
        num_missing: Number of missing values.
        texts: The different texts, unless the column holds numbers by its type; some of them if they are too many.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        *,
        categorical: bool = False,
        numeric: bool = False,
        max_categories: int = 100,
    ) -> None:
        self.source, self.name = source, name
        self.categorical, self.numeric, self.max_categories = categorical, numeric, max_categories
        self.num_rows, self.num_missing, self.is_text = 0, 0, True
        self.texts: set[str] = set()
        self._most_counted = max(_MOST_COUNTED, max_categories)
        self._counts = dict.fromkeys(_PATTERNS, 0)
        # row and value of the first that is of some kind
        self._first: dict[str, tuple[int, object]] = {}
        self._numbers = _Moments()

    @staticmethod
    def of(values: Values, **options: Any) -> "Summary":
        """Returns the summary of a column in memory."""
        summary = Summary(values.source, values.name, **options)
        summary.add(values)
        return summary

    def add(self, values: Values) -> None:
        """Takes the next rows."""
        array, self.is_text = values.array, values.is_text
        self._note("known", values, pc.is_valid(array))
        if self.is_text:
            found = {kind: matches(array, pattern) for kind, pattern in _PATTERNS.items()}
            for kind, mask in found.items():
                self._counts[kind] += pc.sum(mask).as_py() or 0
                self._note(kind, values, mask)
            self._note("other", values, pc.invert(found["number"]))
            self._note("long", values, pc.greater(pc.utf8_length(array), LONGEST_NAME))
        self._add_numbers(values)
        if self._may_be_categories:
            different = pc.unique(values.texts().drop_null())
            self.texts.update(different[: self._most_counted + 1].to_pylist())
        self.num_rows += len(array)
        self.num_missing += array.null_count

    @property
    def num_known(self) -> int:
        """Returns the number of values that are not missing."""
        return self.num_rows - self.num_missing

    @property
    def has_many_texts(self) -> bool:
        """Returns whether there are too many different texts to count."""
        return len(self.texts) > self._most_counted

    @property
    def _may_be_categories(self) -> bool:
        textual = self.categorical or (self.is_text and not self.numeric)
        # long texts are refused, and are not kept
        return textual and not self.has_many_texts and "long" not in self._first

    @property
    def looks_numeric(self) -> bool:
        """Returns whether all known values are numbers and none is a code with a leading zero."""
        return not self.is_text or (self.share("number") == 1 and not self._counts["code"])

    def share(self, kind: str) -> float:
        """Returns the share of the known values that match a pattern."""
        return self._counts[kind] / max(self.num_known, 1)

    def error(self, kind: str, message: str) -> GraphError:
        """Returns an error that names the first value of a kind, with its line and column."""
        row, value = self._first[kind]
        return value_error(self.source, row, self.name, value, message)

    def moments(self) -> tuple[float, float]:
        """Returns mean and standard deviation of the numbers; refuses other text and values that are not finite."""
        self._check_numbers()
        mean, deviation = self._numbers.mean, self._numbers.deviation
        if not np.isfinite((mean, deviation)).all():
            self._first["largest"] = self._numbers.largest
            raise self.error("largest", "is too large for a feature; correct it, or take its logarithm")
        return mean, deviation

    def refuse_dates(self) -> None:
        """Refuses a column that is mostly dates or times."""
        if self.share("date") >= 0.5:
            raise self.error("date", f"is a date; turn it into a number, such as days, or {ignoring(self.name)}")

    def refuse_long(self, what: str) -> None:
        """Refuses text that is too long for a name."""
        if "long" in self._first:
            raise self.error(
                "long", f"is too long for {what}, at most {LONGEST_NAME} characters; {ignoring(self.name)}"
            )

    def kind(self) -> Kind:
        """Decides whether the column holds numbers or categories."""
        if self.num_known == 0:
            raise nothing_known(self.source, self.name)
        if self.numeric or (not self.is_text and not self.categorical):
            self._check_numbers()
            return "number"
        if not self.categorical:
            self.refuse_dates()
            if self.looks_numeric:
                self._check_numbers()
                return "number"
            if 0.5 <= (share := self.share("number")) < 1:
                raise self.error(
                    "other",
                    f"is not a number, but {share:.0%} of the column are; correct it, or take all as categories with "
                    f"`--categorical {self.name}`",
                )
            if self.share("comma") >= 0.5:
                raise self.error("comma", "has a decimal comma; write numbers with a point")
        self._check_categories()
        return "category"

    def _check_numbers(self) -> None:
        if "other" in self._first:
            raise self.error("other", "is not a number; correct it, or leave it empty")
        if "infinite" in self._first:
            raise self.error("infinite", "is not finite; correct it, or leave it empty")

    def _check_categories(self) -> None:
        count, shown = len(self.texts), f"{len(self.texts):,}"
        if self.has_many_texts:
            shown = f"more than {self._most_counted:,}"
        unique = count == self.num_known > _FEW_ROWS and not self.categorical
        if count > self.max_categories or unique:
            limit = f"at most {self.max_categories} become categories (`--max-categories`)"
            raise self.error(
                "known",
                f"is one of {shown} different texts, and {'all are different' if unique else limit}; "
                f"{ignoring(self.name)}",
            )
        self.refuse_long("a category")

    def _note(self, kind: str, values: Values, mask: Any) -> None:
        if kind not in self._first and (row := first(mask)) is not None:
            self._first[kind] = values.start + row, values.array[row].as_py()

    def _add_numbers(self, values: Values) -> None:
        # what is not a number, or too large for one, decides about the column
        if "other" in self._first or "infinite" in self._first:
            return
        numbers = pc.cast(values.array, pa.float64())
        self._note("infinite", values, pc.is_inf(numbers))
        if "infinite" not in self._first:
            self._numbers.add(values, numbers.to_numpy())


class _Moments:
    """Mean and deviation of numbers that come in batches, by the formula of Chan, Golub and LeVeque (1979)."""

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0
        self.size, self.largest = -1.0, (0, None)

    @property
    def deviation(self) -> float:
        return float(np.sqrt(self.squares / max(self.count, 1)))

    def add(self, values: Values, numbers: np.ndarray) -> None:
        known = numbers[~np.isnan(numbers)]
        if len(known) == 0:
            return
        row = int(np.nanargmax(np.abs(numbers)))
        if abs(numbers[row]) > self.size:
            self.size = float(abs(numbers[row]))
            self.largest = values.start + row, values.array[row].as_py()
        # what overflows is refused by `Summary.moments`
        with np.errstate(over="ignore", invalid="ignore"):
            mean = known.mean()
            squares = np.square(known - mean).sum()
            total = self.count + len(known)
            apart = mean - self.mean
            self.squares += squares + apart**2 * self.count * len(known) / total
            self.mean = float(mean if self.count == 0 else self.mean + apart * len(known) / total)
            self.count = total
