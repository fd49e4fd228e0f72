import numpy as np
import pytest

from lazygnn.errors import GraphError
from lazygnn.tables.encoding import encode_columns, fit_columns
from lazygnn.tables.options import TableOptions
from lazygnn.tables.schema import CategoryColumn, NumberColumn
from tests.tables.helpers import frame


def test_numbers_are_scaled_and_categories_are_zeros_and_ones() -> None:
    yes = ["True", "false", "TRUE"]
    source, table = frame(age=["1", "", "3"], plan=["pro", "basic", None], same=[7, 7, 7], yes=yes)
    columns = fit_columns(source, table, ["age", "plan", "same", "yes"], TableOptions())
    assert columns == (
        NumberColumn(name="age", mean=2, scale=1, indicator=True),
        CategoryColumn(name="plan", values=("basic", "pro"), indicator=True),
        NumberColumn(name="same", mean=7, scale=1),
        CategoryColumn(name="yes", values=("false", "true")),
    )
    x, missing, unknown = encode_columns(source, table, columns)
    expected = [[-1, 0, 0, 1, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 0, 0, 1]]
    assert x.dtype == np.float32
    assert x.tolist() == expected
    assert (missing, unknown) == ({"age": 1, "plan": 1}, {})


def test_new_rows_are_encoded_as_the_old_ones() -> None:
    source, table = frame(age=["1", "3"], plan=["pro", "basic"], yes=[True, False])
    columns = fit_columns(source, table, ["age", "plan", "yes"], TableOptions())
    # text and numbers, words in another case, an unknown value, and a column of nothing
    source, table = frame(yes=["TRUE", "True", "False"], plan=["pro", "gold", None], age=[5, None, 2])
    x, missing, unknown = encode_columns(source, table, columns)
    assert x.tolist() == [[3, 0, 1, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0]]
    assert (missing, unknown) == ({"age": 1, "plan": 1}, {"plan": 1})
    source, table = frame(age=["", ""], plan=[None, None], yes=[None, "true"])
    assert encode_columns(source, table, columns)[0].tolist() == [[0] * 5, [0, 0, 0, 0, 1]]


def test_a_category_that_is_not_a_boolean_keeps_its_case() -> None:
    source, table = frame(yes=["True", "maybe"])
    columns = fit_columns(source, table, ["yes"], TableOptions())
    source, table = frame(yes=["True", "True"])
    assert encode_columns(source, table, columns)[0].tolist() == [[1, 0], [1, 0]]


def test_a_number_in_place_of_text_is_refused_with_its_row() -> None:
    source, table = frame(age=["1", "3"])
    columns = fit_columns(source, table, ["age"], TableOptions())
    source, table = frame(age=["1", "old"])
    with pytest.raises(GraphError, match=r"`nodes`, row 1, column `age`: 'old' is not a number; correct it"):
        encode_columns(source, table, columns)


def test_numbers_that_are_too_large_are_refused() -> None:
    source, table = frame(age=["1", "1e300", "-1e300"])
    with pytest.raises(GraphError, match=r"`nodes`, row 1, column `age`: '1e300' is too large for a feature"):
        fit_columns(source, table, ["age"], TableOptions())
    source, table = frame(age=["1", "2"])
    columns = fit_columns(source, table, ["age"], TableOptions())
    source, table = frame(age=["1", "1e300"])
    with pytest.raises(GraphError, match=r"`nodes`, row 1: feature 0 is too large for float32; correct the row"):
        encode_columns(source, table, columns)
