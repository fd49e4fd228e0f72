"""What a column holds, from one batch or several."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lazygnn.errors import GraphError
from lazygnn.tables import summary
from lazygnn.tables.columns import read_values
from lazygnn.tables.summary import Summary
from tests.tables.helpers import frame, values


def summarized(column: Any, **options: Any) -> Summary:
    return Summary.of(values(column), **options)


def in_batches(column: list[Any], size: int, **options: Any) -> Summary:
    """Summarizes a column a few rows at a time."""
    source, table = frame(column=column)
    found = Summary(source, "column", **options)
    for start in range(0, len(column), size):
        found.add(read_values(source, table.slice(start, size), "column", start=start, or_empty=True))
    return found


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
    assert summarized(column).kind() == kind


def test_the_user_decides_between_numbers_and_categories() -> None:
    assert summarized(["1", "2"], categorical=True).kind() == "category"
    assert summarized([1, 2], categorical=True).kind() == "category"
    assert summarized(["01", "2"], numeric=True).kind() == "number"


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
    for size in (len(column), 1):
        with pytest.raises(GraphError, match=message):
            in_batches(column, size, max_categories=10).kind()


def test_codes_do_not_look_like_numbers() -> None:
    assert summarized(["1", "0", "0.5"]).looks_numeric
    assert not summarized(["1", "007"]).looks_numeric
    assert not summarized(["1", "b"]).looks_numeric


@pytest.mark.parametrize(
    "column", [["1", "", "4", "-2.5", "NA", "8e3"], [1.5, None, 2.0, 7.0]], ids=["text", "numbers"]
)
def test_mean_and_deviation_do_not_depend_on_the_batches(column: list[Any]) -> None:
    expected = values(column).numbers()
    for size in (1, 2, len(column)):
        found = in_batches(column, size)
        assert found.kind() == "number"
        assert found.moments() == pytest.approx((np.nanmean(expected), np.nanstd(expected)), rel=1e-14)
        assert found.num_missing == int(np.isnan(expected).sum())


def test_large_numbers_far_from_zero_keep_their_deviation() -> None:
    numbers = 1e9 + np.random.default_rng(0).normal(size=1000)
    mean, deviation = in_batches(numbers.tolist(), 7).moments()
    assert mean == pytest.approx(numbers.mean(), rel=1e-15)
    assert deviation == pytest.approx(numbers.std(), rel=1e-6)


def test_an_empty_column_is_refused_after_all_batches() -> None:
    found = in_batches(["", "NA", None], 1)
    with pytest.raises(GraphError, match=r"`nodes`, column `column`: every value is missing; leave it out with"):
        found.kind()
    assert in_batches(["", "NA", "7"], 1).kind() == "number"


def test_different_texts_are_counted_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "_MOST_COUNTED", 40)
    column = [f"name {number}" for number in range(90)]
    for size in (90, 30):
        with pytest.raises(GraphError, match=r"'name 0' is one of 90 different texts, and all are different"):
            in_batches(column, size).kind()
        found = in_batches(column, size, max_categories=50)
        with pytest.raises(GraphError, match=r"'name 0' is one of more than 50 different texts, and at most 50 become"):
            found.kind()
        # what is kept is bounded, whatever the table
        assert 50 < len(found.texts) <= 60 if size == 30 else len(found.texts) == 51


def test_long_texts_are_not_kept() -> None:
    found = in_batches(["a", "x" * 300, "y" * 300], 1)
    assert found.texts == {"a"}
    with pytest.raises(GraphError, match=r"row 1, column `column`: 'x{40}\.\.\.' is too long for a category"):
        found.kind()
