from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from lazygnn.errors import ConfigError, GraphError
from lazygnn.tables.reading import BLOCK_BYTES, CsvSource, decode, open_table, require_columns
from tests.tables.helpers import open_text, read_columns, write

TABLE = pa.table({"a": ["x", "y"], "b": [1, 2]})


class Streamed:
    """A table of another package, which offers the stream of Arrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


def test_every_value_of_a_csv_file_is_text(tmp_path: Path) -> None:
    source = open_text(tmp_path, '\ufeffa , b\r\n"1, x",\r\n"two\r\nlines",NA\r\n')
    assert source.columns == ("a", "b")
    assert read_columns(source, ["b", "a"]).to_pylist() == [{"b": "", "a": "1, x"}, {"b": "NA", "a": "two\r\nlines"}]


@pytest.mark.parametrize("make", [lambda: TABLE, lambda: TABLE.to_pydict(), Streamed])
def test_tables_in_memory_are_read(make: Any) -> None:
    source = open_table(make(), "nodes")
    assert read_columns(source, ["b"]).to_pylist() == [{"b": 1}, {"b": 2}]
    assert source.place(1) == "`nodes`, row 1"


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_data_frames_are_read(package: str) -> None:
    frame = pytest.importorskip(package).DataFrame(TABLE.to_pydict())
    assert read_columns(open_table(frame, "nodes"), ["b"]).to_pylist() == [{"b": 1}, {"b": 2}]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.int64()])
def test_codes_of_a_dictionary_become_values(kind: pa.DataType) -> None:
    values = pa.array([7, 8] if kind == pa.int64() else ["x", "y"], kind)
    coded = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), values)
    expected = [values[1].as_py(), None, values[0].as_py()]
    assert decode(coded).to_pylist() == expected
    assert decode(pa.chunked_array([coded, coded])).to_pylist() == expected * 2
    assert decode(values) is values


def test_the_index_of_pandas_is_a_column_if_it_has_a_name() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"b": [1, 2]}, index=[5, 7])
    assert open_table(frame, "nodes").columns == ("b",)
    assert open_table(frame.rename_axis("a"), "nodes").columns == ("a", "b")


def test_parquet_is_read(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(TABLE, tmp_path / "t.parquet")
    source = open_table(str(tmp_path / "t.parquet"), "nodes")
    told: list[int] = []
    assert read_columns(source, ["b", "a"], told.append).to_pylist() == [{"b": 1, "a": "x"}, {"b": 2, "a": "y"}]
    assert (told, source.size, source.place(1)) == ([2], 2, f"`{tmp_path / 't.parquet'}`, row 2")


def test_progress_counts_the_bytes_of_a_csv_file(tmp_path: Path) -> None:
    rows = BLOCK_BYTES // 16 + 10
    source = open_text(tmp_path, "a,b\n" + "1234567,1234567\n" * rows)
    told: list[int] = []
    assert sum(len(batch) for batch in source.batches(["a"], told.append)) == rows
    assert len(told) > 1
    assert told == sorted(told)
    assert told[-1] == source.size


def test_places_are_lines(tmp_path: Path) -> None:
    source = open_text(tmp_path, 'a\n"x\ny"\nz\n')
    assert source.place(1) == f"`{tmp_path / 'nodes.csv'}`, line 4"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1\n", r"nodes.csv`, line 2: the row has 1 values for 2 columns"),
        ('a,b\n1,"2\n3,4\n5,6\n', r"nodes.csv`, line 2: a quote is not closed"),
        ("a,a\n1,2\n", r"nodes.csv`, line 1: the column `a` is there twice; rename one of them"),
        (",a\n0,2\n", r"nodes.csv`, line 1: column 1 has no name; name it, or write the table without an index"),
    ],
)
def test_a_broken_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_columns(open_text(tmp_path, text), ["a"])


def test_empty_lines_are_skipped(tmp_path: Path) -> None:
    source = open_text(tmp_path, "\n\na\n\n1\n\n2\n\n\n")
    assert read_columns(source, ["a"]).to_pydict() == {"a": ["1", "2"]}
    assert source.place(1).endswith("line 7")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("nowhere.csv", r"no file `nowhere.csv`; give the path of a CSV or Parquet file"),
        (3, r"`nodes` is 3, of type int; give the path of a file, or a table of pandas, polars or Arrow"),
        ({"a": [1], "b": [1, 2]}, r"`nodes` does not convert to an Arrow table"),
        ({}, r"`nodes` has no columns"),
    ],
)
def test_what_is_not_a_table_is_refused(table: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        open_table(table, "nodes")


@pytest.mark.parametrize(
    ("name", "message"),
    [("t.xlsx", "is neither a .csv nor a .parquet file"), ("t.parquet", "is not a readable Parquet file")],
)
def test_other_files_are_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        open_table(write(tmp_path, "a,b\n1,2\n", name), "nodes")


def test_a_missing_column_is_named_with_the_option(tmp_path: Path) -> None:
    source = open_text(tmp_path, "a,b\n1,2\n")
    require_columns(source, ["b"], "--id")
    with pytest.raises(ConfigError, match=r"`--id` names `c`, but `.*` has the columns: a, b; choose one of them"):
        require_columns(source, ["b", "c"], "--id")


def test_a_row_longer_than_a_block_is_refused(tmp_path: Path) -> None:
    source = open_text(tmp_path, b"a,b\n1,2\n" + b"x" * (2 * BLOCK_BYTES) + b",2\n3,4\n")
    assert isinstance(source, CsvSource)
    with pytest.raises(GraphError, match=r"line 3: the row has 33,554,435 characters, at most 8,388,608; shorten it"):
        read_columns(source, ["a"])
