from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lazygnn.errors import GraphError
from lazygnn.tables import reading
from lazygnn.tables.encoding import encode_columns, fit_columns, read_nodes, summaries
from lazygnn.tables.options import TableOptions
from lazygnn.tables.reading import Source, open_table
from lazygnn.tables.schema import CategoryColumn, Column, NumberColumn
from tests.tables.helpers import encoded, fitted, frame, write


def test_numbers_are_scaled_and_categories_are_zeros_and_ones() -> None:
    yes = ["True", "false", "TRUE"]
    table: dict[str, Any] = {
        "age": ["1", "", "3"],
        "plan": ["pro", "basic", None],
        "same": [7, 7, 7],
        "yes": yes,
    }
    columns = fitted(frame(**table)[0], ["age", "plan", "same", "yes"])
    assert columns == (
        NumberColumn(name="age", mean=2, scale=1, indicator=True),
        CategoryColumn(name="plan", values=("basic", "pro"), indicator=True),
        NumberColumn(name="same", mean=7, scale=1),
        CategoryColumn(name="yes", values=("false", "true")),
    )
    found = encoded(columns, **table)
    expected = [[-1, 0, 0, 1, 0, 0, 0, 1], [0, 1, 1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 0, 0, 1]]
    assert found.x.dtype == np.float32
    assert found.x.tolist() == expected
    assert (found.missing, found.unknown) == ({"age": 1, "plan": 1}, {})


def test_new_rows_are_encoded_as_the_old_ones() -> None:
    source, _ = frame(age=["1", "3"], plan=["pro", "basic"], yes=[True, False])
    columns = fitted(source, ["age", "plan", "yes"])
    # text and numbers, words in another case, an unknown value, and a column of nothing
    found = encoded(columns, yes=["TRUE", "True", "False"], plan=["pro", "gold", None], age=[5, None, 2])
    assert found.x.tolist() == [[3, 0, 1, 0, 1], [0, 0, 0, 0, 1], [0, 0, 0, 1, 0]]
    assert (found.missing, found.unknown) == ({"age": 1, "plan": 1}, {"plan": 1})
    found = encoded(columns, age=["", ""], plan=[None, None], yes=[None, "true"])
    assert found.x.tolist() == [[0] * 5, [0, 0, 0, 0, 1]]


@pytest.mark.parametrize("column", [["2.0", "1", "", "3.0"], [2.0, 1.0, None, 3.0]], ids=["text", "numbers"])
def test_a_category_in_another_spelling_is_the_same_category(column: list[Any]) -> None:
    columns = [CategoryColumn(name="code", values=("1", "2"), indicator=False)]
    found = encode_columns(frame(code=column)[0], columns, 4)
    assert found.x.tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]
    assert found.unknown == {"code": 1}


def test_a_category_that_is_not_a_boolean_keeps_its_case() -> None:
    columns = fitted(frame(yes=["True", "maybe"])[0], ["yes"])
    assert encoded(columns, yes=["True", "True"]).x.tolist() == [[1, 0], [1, 0]]


def test_text_in_place_of_a_number_is_refused_with_its_row() -> None:
    columns = fitted(frame(age=["1", "3"])[0], ["age"])
    with pytest.raises(GraphError, match=r"`nodes`, row 1, column `age`: 'old' is not a number; correct it"):
        encoded(columns, age=["1", "old"])


def test_numbers_that_are_too_large_are_refused() -> None:
    with pytest.raises(GraphError, match=r"`nodes`, row 1, column `age`: '1e300' is too large for a feature"):
        fitted(frame(age=["1", "1e300", "-1e300"])[0], ["age"])
    columns = fitted(frame(age=["1", "2"])[0], ["age"])
    with pytest.raises(GraphError, match=r"`nodes`, row 1: feature 0 is too large for float32; correct the row"):
        encoded(columns, age=["1", "1e300"])


def rows_of(count: int) -> str:
    rng = np.random.default_rng(0)
    rows = zip(rng.normal(5, 3, count), rng.integers(0, 3, count), rng.random(count) < 0.2, strict=True)
    return "".join(f"n{n},{'' if lost else size},kind {kind}\n" for n, (size, kind, lost) in enumerate(rows))


def read_in_blocks(path: Path, tell: Any = lambda _: None) -> tuple[Source, pa.Table, tuple[Column, ...]]:
    source = open_table(path, "nodes")
    summarized = summaries(source, ["size", "kind"], TableOptions())
    table = read_nodes(source, ["id"], summarized, tell)
    return source, table, fit_columns(summarized)


def test_a_file_in_many_blocks_is_encoded_as_in_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "id,size,kind\n" + rows_of(300))
    source, table, columns = read_in_blocks(path)
    whole = encode_columns(source, columns, 300)
    monkeypatch.setattr(reading, "BLOCK_BYTES", 1000)
    told: list[int] = []
    source, parts, again = read_in_blocks(path, told.append)
    assert len(told) > 5
    assert parts.equals(table)
    assert isinstance(columns[0], NumberColumn)
    assert isinstance(again[0], NumberColumn)
    assert again[0].mean == pytest.approx(columns[0].mean, rel=1e-14)
    assert again[0].scale == pytest.approx(columns[0].scale, rel=1e-14)
    assert again[1] == columns[1]
    found = encode_columns(source, again, 300)
    np.testing.assert_allclose(found.x, whole.x, rtol=1e-6, atol=1e-6)
    assert (found.missing, found.unknown) == (whole.missing, whole.unknown)
    assert found.missing["size"] == int((whole.x[:, 1] == 1).sum()) > 10


def test_the_memory_of_a_file_is_that_of_a_few_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "id,size,kind\n" + rows_of(20_000))
    monkeypatch.setattr(reading, "BLOCK_BYTES", 10_000)
    before, told = pa.total_allocated_bytes(), [0]

    def tell(_: int) -> None:
        told.append(pa.total_allocated_bytes() - before)

    source, table, columns = read_in_blocks(path, tell)
    kept = table.nbytes
    assert max(told) < kept + 20 * 10_000 < path.stat().st_size
    del table
    told[:] = [0]
    encode_columns(source, columns, 20_000, tell)
    assert 0 < max(told) < 20 * 10_000


def test_an_error_in_a_later_block_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK_BYTES", 1000)
    path = write(tmp_path, "id,size,kind\n" + rows_of(300) + "last,old,kind 1\n")
    with pytest.raises(GraphError, match=r"nodes.csv`, line 302, column `size`: 'old' is not a number, but 100% of"):
        read_in_blocks(path)
    columns = (NumberColumn(name="size", mean=0, scale=1),)
    with pytest.raises(GraphError, match=r"nodes.csv`, line 302, column `size`: 'old' is not a number; correct it"):
        encode_columns(open_table(path, "nodes"), columns, 301)
    path = write(tmp_path, "id,size,kind\n" + rows_of(300) + "last,1e300,kind 1\n")
    with pytest.raises(GraphError, match=r"nodes.csv`, line 302: feature 0 is too large for float32"):
        encode_columns(open_table(path, "nodes"), columns, 301)


@pytest.mark.parametrize("num_rows", [2, 4])
def test_a_table_that_changes_while_it_is_read_is_refused(num_rows: int) -> None:
    source, _ = frame(age=[1, 2, 3])
    with pytest.raises(GraphError, match=r"`nodes` has changed while it was read; import it again"):
        encode_columns(source, (NumberColumn(name="age", mean=0, scale=1),), num_rows)


@pytest.mark.parametrize("text", ["id,size\n", "id,size"])
def test_a_table_without_rows_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(GraphError, match=r"nodes.csv` has no rows; give at least one"):
        read_nodes(open_table(write(tmp_path, text), "nodes"), ["id"])
