from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lazygnn.errors import GraphError
from lazygnn.tables.columns import find_kind, looks_numeric, read_values
from tests.tables.helpers import frame, values


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (["1", " 2.5", "-3e2", "+.5", "", "NA"], "number"),
        ([1, 2, None], "number"),
        ([0.5, float("nan")], "number"),
        (["01", "02", "1"], "category"),
        (["red", "blue", "n/a"], "category"),
        (["True", "FALSE", "true"], "category"),
        ([True, False, None], "category"),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "category"),
        (["=SUM(A1)", "@cmd", "a"], "category"),
    ],
)
def test_a_column_holds_numbers_or_categories(column: Any, kind: str) -> None:
    assert find_kind(values(column)) == kind


def test_the_user_decides_between_numbers_and_categories() -> None:
    assert find_kind(values(["1", "2"]), categorical=True) == "category"
    assert find_kind(values([1, 2]), categorical=True) == "category"
    assert find_kind(values(["01", "2"]), numeric=True) == "number"


def test_missing_values_are_not_numbers() -> None:
    np.testing.assert_array_equal(values(["1", "", "nan", "NULL", " 4 "]).numbers(), [1, np.nan, np.nan, np.nan, 4])


def test_whole_numbers_as_text_have_no_point() -> None:
    assert values([1.0, 2.0, None]).texts().to_pylist() == ["1", "2", None]
    assert values([0.5, 2.0]).texts().to_pylist() == ["0.5", "2"]


TEXTS = [f"name {number}" for number in range(30)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            ["2026-01-31", "2026-02-01"],
            r"row 0, column `column`: '2026-01-31' is a date; turn it into a number",
        ),
        (["", "31.1.2026"], r"row 1, column `column`: '31.1.2026' is a date; .* `--ignore column`"),
        (["1/31/26", "12:30"], r"is a date"),
        (TEXTS, r"row 0, column `column`: 'name 0' is one of 30 different texts, and all are different; leave it out"),
        (TEXTS[:11] * 2, r"is one of 11 different texts, and at most 10 become categories \(`--max-categories`\)"),
        (["1", "2", "x"], r"row 2, column `column`: 'x' is not a number, but 67% of the column are; .* `--categorical"),
        (["1,5", "2,5", "x"], r"row 0, column `column`: '1,5' has a decimal comma; write numbers with a point"),
        (["1", "inf"], r"row 1, column `column`: 'inf' is not finite; correct it, or leave it empty"),
        ([1.0, float("-inf")], r"row 1, column `column`: -inf is not finite"),
        (["1e999", "1"], r"row 0, column `column`: '1e999' is not finite"),
        (["x" * 300, "b"], r"row 0, column `column`: 'x{40}\.\.\.' is too long for a category, at most 256 characters"),
    ],
)
def test_other_columns_are_refused_with_line_and_remedy(column: list[Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        find_kind(values(column), max_categories=10)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["", "NA"], r"`nodes`, column `column`: every value is missing; leave it out with `--ignore column`"),
        ([None, None], r"every value is missing"),
        (pa.array([0, 1], pa.timestamp("s")), r"`nodes`, column `column` holds dates or times \(timestamp\[s\]\)"),
        ([[1], [2]], r"`nodes`, column `column` has the type list"),
        ([b"x", b"y"], r"`nodes`, column `column` has the type binary"),
    ],
)
def test_other_types_are_refused(column: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        values(column)


def test_an_empty_column_may_be_accepted() -> None:
    source, table = frame(column=["", None])
    assert read_values(source, table, "column", or_empty=True).array.null_count == 2


def test_codes_do_not_look_like_numbers() -> None:
    assert looks_numeric(values(["1", "0", "0.5"]))
    assert not looks_numeric(values(["1", "007"]))
    assert not looks_numeric(values(["1", "b"]))
