from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lazygnn.errors import GraphError
from lazygnn.tables.columns import read_values
from tests.tables.helpers import frame, values


def test_missing_values_are_not_numbers() -> None:
    np.testing.assert_array_equal(values(["1", "", "nan", "NULL", " 4 "]).numbers(), [1, np.nan, np.nan, np.nan, 4])


def test_whole_numbers_as_text_have_no_point() -> None:
    assert values([1.0, 2.0, None]).texts().to_pylist() == ["1", "2", None]
    assert values([0.5, 2.0]).texts().to_pylist() == ["0.5", "2"]
    # a value has the same text beside any others, since a table is read in batches
    assert values([0.5, 3e12, 1e300]).texts().to_pylist() == ["0.5", "3000000000000", "1e+300"]


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
