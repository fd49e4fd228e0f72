"""Ids of nodes as positions, and edges between them.

`N` nodes, `M` rows of a table of edges.
"""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.tables.columns import LONGEST_NAME, first, matches, show
from lazygnn.tables.reading import TEXT, CsvSource, Source, Tell, decode, ignore_progress
from lazygnn.tables.roles import EdgeRoles

# integers that equal their text and fit 64 bits
_INTEGER = r"^(0|-?[1-9]\d{0,17})$"
# ids that are converted at a time
_BLOCK = 65_536


class NodeIndex:
    """The position of every id.

    Args:
        texts: The ids as text, [N], all different.
        name: What errors call the table of nodes.
    """

    def __init__(self, texts: Any, name: str) -> None:
        self.texts, self.name = texts, name

    def __len__(self) -> int:
        return len(self.texts)

    def positions(self, ids: Any) -> np.ndarray:
        """Returns the position of every id, -1 for an unknown one."""
        found: np.ndarray = pc.fill_null(pc.index_in(ids, value_set=self.texts), -1).to_numpy(zero_copy_only=False)
        return found

    def are_integers(self) -> bool:
        """Returns whether every id is an integer."""
        return bool(pc.all(matches(self.texts, _INTEGER)).as_py())

    def node_ids(self) -> np.ndarray:
        """Returns the ids, as integers if every text is one."""
        if self.are_integers():
            return np.asarray(pc.cast(self.texts, pa.int64()).to_numpy())
        length = pc.max(pc.utf8_length(self.texts)).as_py() or 1
        ids = np.empty(len(self.texts), dtype=f"<U{length}")
        # a list of all ids would take several times their memory
        for start in range(0, len(ids), _BLOCK):
            ids[start : start + _BLOCK] = self.texts[start : start + _BLOCK].to_pylist()
        return ids

    def alike(self, wanted: str) -> str | None:
        """Returns an id that differs from another in zeros, spaces or case alone."""
        folded = _fold(wanted)
        return next((one for one in self.texts.to_pylist() if _fold(one) == folded), None)


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges as positions of nodes.

    Attributes:
        index: Both ends, [2, M].
        weight: Weights, [M].
        num_rows: Rows of the table.
        num_loops: Edges from a node to itself.
        num_unknown: Rows that were dropped, since a node is unknown.
    """

    index: np.ndarray
    weight: np.ndarray | None
    num_rows: int
    num_loops: int
    num_unknown: int


def ids_of(graph: Graph) -> Any:
    """Returns the ids of a graph as text, [N]; positions if it has none."""
    ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    return pa.array(ids.astype(np.str_).tolist(), TEXT)


def index_nodes(source: Source, table: pa.Table, column: str) -> NodeIndex:
    """Reads the ids of nodes; refuses missing, repeated and overlong ones."""
    texts = _id_texts(source, column, table.column(column).combine_chunks())
    for wrong, message in (
        (pc.equal(pc.fill_null(texts, ""), ""), "the id is missing; give every node one"),
        (pc.greater(pc.utf8_length(texts), LONGEST_NAME), f"the id is too long, at most {LONGEST_NAME} characters"),
        (pc.match_substring(texts, "\0"), "the id holds a null character; remove it"),
    ):
        if (row := first(wrong)) is not None:
            raise GraphError(f"{source.place(row)}, column `{column}`: {message}")
    encoded = texts.dictionary_encode()
    if len(encoded.dictionary) < len(texts):
        code = encoded.indices.to_numpy()
        seen, start = np.unique(code, return_index=True)
        repeated = np.ones(len(code), dtype=bool)
        repeated[start] = False
        row = int(repeated.argmax())
        before = source.place(int(start[np.searchsorted(seen, code[row])])).rsplit(", ", 1)[-1]
        raise GraphError(
            f"{source.place(row)}, column `{column}`: the id {show(texts[row].as_py())} is on {before} already; "
            f"{int(repeated.sum()):,} rows repeat an id; give every node one row"
        )
    return NodeIndex(texts, source.name)


def refuse_edge_as_header(source: Source, roles: EdgeRoles, index: NodeIndex) -> None:
    """Refuses a CSV file without a header, whose first edge would be taken for one."""
    if not roles.by_position or not isinstance(source, CsvSource):
        return
    ends = roles.source, roles.target
    names = pa.array(ends, TEXT)
    known = index.positions(names) >= 0
    if known.all() or (pc.all(matches(names, _INTEGER)).as_py() and index.are_integers()):
        raise GraphError(
            f"{source.name}, line {source.layout.header_line}: `{ends[0]}` and `{ends[1]}` look like an edge, not like "
            "a header; write a header above it, such as `source` and `target`, or if these are names of columns, "
            f"give `--source {ends[0]}` and `--target {ends[1]}`"
        )


def read_edges(
    source: Source, roles: EdgeRoles, index: NodeIndex, *, drop_unknown: bool = False, tell: Tell = ignore_progress
) -> Edges:
    """Reads edges in batches, so that the memory is that of the positions: 8 bytes an edge, 12 with weights."""
    columns = [roles.source, roles.target, *([] if roles.weight is None else [roles.weight])]
    ends: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    rows, loops, unknown = 0, 0, 0
    for batch in source.batches(columns, tell):
        found = np.stack([_positions(source, batch, column, rows, index, drop_unknown) for column in columns[:2]])
        known = (found >= 0).all(axis=0)
        unknown += int((~known).sum())
        loops += int((found[0] == found[1])[known].sum())
        if roles.weight is not None:
            weights.append(_weights(source, batch, roles.weight, rows)[known])
        ends.append(found[:, known])
        rows += len(batch)
    empty = np.zeros((2, 0), dtype=np.int32)
    weight = None if roles.weight is None else np.concatenate(weights or [np.zeros(0, dtype=np.float32)])
    return Edges(np.concatenate(ends or [empty], axis=1), weight, rows, loops, unknown)


def _positions(
    source: Source, batch: pa.RecordBatch, column: str, start: int, index: NodeIndex, drop_unknown: bool
) -> np.ndarray:
    texts = _id_texts(source, column, batch.column(column))
    found = index.positions(texts).astype(np.int32)
    if drop_unknown or bool((found >= 0).all()):
        return found
    row = int((found < 0).argmax())
    wanted = texts[row].as_py()
    if not wanted:
        what = "the id is missing"
    else:
        alike = index.alike(wanted)
        hint = "" if alike is None else f", which has {show(alike)}"
        what = f"{show(wanted)} is not an id of {index.name}{hint}"
    raise GraphError(
        f"{source.place(start + row)}, column `{column}`: {what}; correct it, or drop such edges with `--drop-unknown`"
    )


def _weights(source: Source, batch: pa.RecordBatch, column: str, start: int) -> np.ndarray:
    array = decode(batch.column(column))
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
        numbers = pc.cast(array, pa.float64(), safe=False)
    elif "string" in str(array.type):
        texts = pc.utf8_trim_whitespace(pc.cast(array, TEXT))
        is_number = pc.fill_null(matches(texts, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"), False)
        numbers = pc.cast(pc.if_else(is_number, texts, None), pa.float64())
    else:
        raise GraphError(f"{source.name}, column `{column}` has the type {array.type}; give weights as numbers")
    weight: np.ndarray = numbers.to_numpy(zero_copy_only=False).astype(np.float64)
    wrong = ~(np.isfinite(weight) & (weight >= 0) & (weight <= np.finfo(np.float32).max))
    if wrong.any():
        row = int(wrong.argmax())
        raise GraphError(
            f"{source.place(start + row)}, column `{column}`: {show(array[row].as_py())} is not a weight; "
            "give a number that is not negative"
        )
    return weight.astype(np.float32)


def _id_texts(source: Source, column: str, array: Any) -> Any:
    """Returns ids as text without surrounding spaces; whole floats are integers."""
    array = decode(array)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), None, array)
        known = pc.cast(array.drop_null(), pa.float64())
        if pc.all(pc.and_(pc.equal(known, pc.round(known)), pc.less(pc.abs(known), 2.0**53))).as_py():
            array = pc.cast(array, pa.int64())
    if pa.types.is_integer(array.type):
        return pc.cast(array, TEXT)
    if "string" not in str(array.type) and not pa.types.is_null(array.type):
        raise GraphError(f"{source.name}, column `{column}` has the type {array.type}; give ids as text or integers")
    return pc.utf8_trim_whitespace(pc.cast(array, TEXT))


def _fold(text: str) -> str:
    """Returns text without case, spaces, leading zeros and a decimal `.0`."""
    return re.sub(r"\.0+$", "", "".join(text.split())).lstrip("0").casefold()
