"""Tables as streams of Arrow batches: CSV and Parquet files, and data frames. A place in a table has a name."""

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from lazygnn.errors import ConfigError, GraphError, wrong_type
from lazygnn.tables.diagnosis import Layout, check_quotes, explain, line_of, read_layout

# a row must fit into a block; the memory of a stream is a few blocks
BLOCK_BYTES = 2**24
_BATCH_ROWS = 2**20
TEXT = pa.large_string()

Tell = Callable[[int], None]


def ignore_progress(_: int) -> None:
    """Takes the progress of a stream and shows nothing."""


class Source(Protocol):
    """A table that is read in batches.

    Attributes:
        name: What errors call it.
        columns: The names of its columns.
        size: What `tell` counts up to in the end: bytes of a CSV file, or rows.
    """

    name: str
    columns: tuple[str, ...]
    size: int

    def batches(self, columns: Sequence[str], tell: Tell = ignore_progress) -> Iterator[pa.RecordBatch]:
        """Yields some columns; `tell` gets the progress so far."""
        ...

    def place(self, row: int) -> str:
        """Returns the name of a row for an error, such as the line of a CSV file; rows count from 0."""
        ...


def open_table(table: Any, name: str) -> Source:
    """Opens a table.

    Args:
        table: A path to a CSV or Parquet file, a data frame of pandas or polars, an Arrow table, or a dict of columns.
        name: What errors call a table that is not a file.
    """
    if isinstance(table, str | Path):
        path = Path(table)
        if not path.is_file():
            raise GraphError(f"no file `{path}`; give the path of a CSV or Parquet file")
        if path.suffix.lower() in (".parquet", ".pq"):
            return ParquetSource(path)
        if path.suffix.lower() in (".csv", ".tsv", ".txt"):
            return CsvSource(path)
        raise GraphError(f"`{path}` is neither a .csv nor a .parquet file; rename or convert it")
    return FrameSource(table, name)


class CsvSource:
    """A CSV file with a header; every value is text. The delimiter is found in the header."""

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.size = path, f"`{path}`", path.stat().st_size
        self.layout: Layout = read_layout(path)
        self.columns = self.layout.columns
        _check_names(self.name, self.columns)

    def batches(self, columns: Sequence[str], tell: Tell = ignore_progress) -> Iterator[pa.RecordBatch]:
        """Yields some columns as text; `tell` gets the bytes read."""
        if self.layout.is_header_only:
            return
        try:
            rows = 0
            with _CountedFile(self.path) as file, self._open(file, columns) as reader:
                for batch in reader:
                    rows += len(batch)
                    tell(file.num_bytes)
                    yield batch
            # a value of several lines may be one that was never closed
            if file.num_lines > rows + self.layout.header_line:
                check_quotes(self.path, self.layout)
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
            raise explain(self.path, self.layout, error, BLOCK_BYTES) from error
        except OSError as error:
            raise GraphError(f"{self.name} cannot be read: {error}; give another file") from error

    def place(self, row: int) -> str:
        """Returns the line of a row."""
        return f"{self.name}, line {line_of(self.path, self.layout, row + 1)}"

    def _open(self, file: Any, columns: Sequence[str]) -> Any:
        return pyarrow.csv.open_csv(
            file,
            # several threads would not count the rows
            read_options=pyarrow.csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK_BYTES,
                column_names=list(self.columns),
                skip_rows=self.layout.header_line - 1,
                skip_rows_after_names=1,
            ),
            parse_options=pyarrow.csv.ParseOptions(delimiter=self.layout.delimiter, newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(columns, TEXT), include_columns=list(columns), strings_can_be_null=False
            ),
        )


class _CountedFile(io.FileIO):
    """A file that counts the bytes and the lines that are read, without empty ones."""

    num_bytes = 0
    num_lines = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(-1 if size is None else size) or b""
        self.num_bytes += len(data)
        self.num_lines += data.count(b"\n") - data.count(b"\n\n") - data.count(b"\n\r\n")
        return data


class ParquetSource:
    """A Parquet file."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, f"`{path}`"
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                self.columns, self.size = tuple(file.schema_arrow.names), file.metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            raise GraphError(f"{self.name} is not a readable Parquet file ({error}); write it again") from error
        _check_names(self.name, self.columns)

    def batches(self, columns: Sequence[str], tell: Tell = ignore_progress) -> Iterator[pa.RecordBatch]:
        """Yields some columns; `tell` gets the rows read."""
        rows = 0
        try:
            with pyarrow.parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns), use_threads=False):
                    rows += len(batch)
                    tell(rows)
                    yield batch.select(list(columns))
        except (pa.ArrowException, OSError) as error:
            raise GraphError(f"{self.name} is not a readable Parquet file ({error}); write it again") from error

    def place(self, row: int) -> str:
        """Returns the number of a row, from 1."""
        return f"{self.name}, row {row + 1}"


class FrameSource:
    """A table in memory: of pandas, polars or Arrow, or a dict of columns."""

    def __init__(self, table: Any, name: str) -> None:
        self.name = f"`{name}`"
        remedy = "give the path of a file, or a table of pandas, polars or Arrow"
        if not isinstance(table, pa.Table | dict) and not hasattr(table, "__arrow_c_stream__"):
            raise GraphError(wrong_type(name, table, remedy))
        try:
            self.table = _from_pandas(table) if type(table).__module__.startswith("pandas") else pa.table(table)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise GraphError(f"{self.name} does not convert to an Arrow table ({error}); {remedy}") from error
        self.columns, self.size = tuple(self.table.column_names), len(self.table)
        _check_names(self.name, self.columns)

    def batches(self, columns: Sequence[str], tell: Tell = ignore_progress) -> Iterator[pa.RecordBatch]:
        """Yields some columns; `tell` gets the rows read."""
        rows = 0
        for batch in self.table.select(list(columns)).to_batches(max_chunksize=_BATCH_ROWS):
            rows += len(batch)
            tell(rows)
            yield batch

    def place(self, row: int) -> str:
        """Returns the number of a row, from 0."""
        return f"{self.name}, row {row}"


def decode(array: Any) -> Any:
    """Replaces the codes of a dictionary by their values; another array stays as it is."""
    if not pa.types.is_dictionary(array.type):
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([decode(chunk) for chunk in array.chunks], _value_type(array.type))
    # Arrow does not decode views of text
    return array.dictionary.cast(_value_type(array.type)).take(array.indices)


def require_columns(source: Source, columns: Sequence[str], option: str) -> None:
    """Refuses names of columns that a table does not have."""
    for column in columns:
        if column not in source.columns:
            raise ConfigError(
                f"`{option}` names `{column}`, but {source.name} has the columns: {', '.join(source.columns)}; "
                "choose one of them"
            )


def _value_type(dictionary: pa.DataType) -> pa.DataType:
    return TEXT if "string" in str(dictionary.value_type) else dictionary.value_type


def _from_pandas(frame: Any) -> pa.Table:
    """Converts a data frame of pandas; an index without a name is not a column."""
    named = any(name is not None for name in frame.index.names)
    return pa.Table.from_pandas(frame.reset_index() if named else frame, preserve_index=False)


def _check_names(name: str, columns: Sequence[str]) -> None:
    if not columns:
        raise GraphError(f"{name} has no columns; give a table with a header")
    for number, column in enumerate(columns, 1):
        if not column.strip():
            raise GraphError(
                f"{name}, line 1: column {number} has no name; name it, or write the table without an index"
            )
        if columns.index(column) != number - 1:
            raise GraphError(f"{name}, line 1: the column `{column}` is there twice; rename one of them")
