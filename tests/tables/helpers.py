"""Small tables that the tests of tables share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lazygnn.graph import Graph
from lazygnn.tables.building import Imported, import_tables
from lazygnn.tables.columns import Values, read_values
from lazygnn.tables.encoding import Features, encode_columns, fit_columns, read_nodes, summaries
from lazygnn.tables.options import TableOptions, read_table_options
from lazygnn.tables.reading import FrameSource, Source, Tell, ignore_progress, open_table
from lazygnn.tables.schema import Column

NODES = """\
id,age,plan,label
a,30,basic,red
b,,pro,blue
c,50,basic,red
d,40,,blue
e,40,pro,
"""
EDGES = """\
source,target
a,b
b,a
b,c
c,c
a,b
"""


def write(folder: Path, text: str | bytes, name: str = "nodes.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def open_text(folder: Path, text: str | bytes, name: str = "nodes.csv") -> Source:
    return open_table(write(folder, text, name), "nodes")


def read_columns(source: Source, columns: Sequence[str], tell: Tell = ignore_progress) -> pa.Table:
    """Reads some columns into memory."""
    return pa.Table.from_batches(list(source.batches(columns, tell)))


def frame(**columns: Any) -> tuple[Source, pa.Table]:
    source = FrameSource(columns, "nodes")
    return source, source.table


def values(column: list[Any]) -> Values:
    source, table = frame(column=column)
    return read_values(source, table, "column")


def fitted(source: Source, names: Sequence[str]) -> tuple[Column, ...]:
    """Decides how columns are encoded, as an import does."""
    summarized = summaries(source, names, TableOptions())
    read_nodes(source, [], summarized)
    return fit_columns(summarized)


def encoded(columns: Sequence[Column], **table: Any) -> Features:
    """Encodes a table in memory."""
    source, content = frame(**table)
    return encode_columns(source, columns, len(content))


def imported(
    folder: Path,
    nodes: str | bytes = NODES,
    edges: str | bytes = EDGES,
    earlier: Graph | None = None,
    **options: Any,
) -> Imported:
    paths = write(folder, nodes), write(folder, edges, "edges.csv")
    return import_tables(*paths, read_table_options(options), earlier=earlier)
