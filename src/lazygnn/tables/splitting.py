"""Splits of the labeled nodes: by shares, stratified or not, by a column, by time, or as in an earlier graph.

`N` nodes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.tables.columns import MISSING, show
from lazygnn.tables.linking import NodeIndex, ids_of
from lazygnn.tables.reading import TEXT, Source, decode

_NAMES = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
Masks = dict[str, np.ndarray]
# of a share of nodes
_ROUNDING = 1e-6


def split_by_shares(labeled: np.ndarray, ratio: Sequence[float], seed: int, classes: np.ndarray | None = None) -> Masks:
    """Draws training, validation and test nodes.

    Every split has less than one node more or less than its share, in every class and in the whole. A class that is
    too small for a training node has one all the same, and its other nodes are shared by validation and test.

    Args:
        labeled: Nodes to draw from, [N] bool.
        ratio: The three shares.
        seed: Seed of the draw.
        classes: The class of every node, [N]; every class is then divided in the same way.
    """
    order = np.random.default_rng(seed).permutation(labeled.nonzero()[0])
    kind = np.zeros(len(order), dtype=int) if classes is None else classes[order]
    groups = [order[kind == one] for one in np.unique(kind)]
    masks = {split: np.zeros(len(labeled), dtype=bool) for split in _NAMES}
    for nodes, (_, num_val, num_test) in zip(groups, _sizes([len(one) for one in groups], ratio), strict=True):
        masks["val"][nodes[:num_val]] = True
        masks["test"][nodes[num_val : num_val + num_test]] = True
        masks["train"][nodes[num_val + num_test :]] = True
    return masks


def split_by_column(source: Source, table: pa.Table, column: str, labeled: np.ndarray) -> Masks:
    """Reads the split of every node: train, val or test; a missing value is no split, and so is a missing label."""
    remedy = "write train, val or test, or leave it empty"
    texts = pc.utf8_lower(_texts(source, column, decode(table.column(column)), remedy))
    found = np.array([split for split, names in _NAMES.items() for _ in names])
    names = pa.array([name for names in _NAMES.values() for name in names], TEXT)
    position = pc.fill_null(pc.index_in(texts, value_set=names), -1).to_numpy()
    absent = pc.is_in(texts, value_set=pa.array([None, *(text.lower() for text in MISSING)], TEXT)).to_numpy()
    wrong = (position < 0) & ~absent
    if wrong.any():
        row = int(wrong.argmax())
        raise GraphError(f"{source.place(row)}, column `{column}`: {show(texts[row].as_py())} is not a split; {remedy}")
    return {split: (position >= 0) & (found[position] == split) & labeled for split in _NAMES}


def split_by_time(source: Source, table: pa.Table, column: str, labeled: np.ndarray, ratio: Sequence[float]) -> Masks:
    """Trains on the oldest nodes and tests on the newest; nodes of the same time are in the same split."""
    times = _times(source, table, column)
    if (labeled & np.isnan(times)).any():
        row = int((labeled & np.isnan(times)).argmax())
        raise GraphError(
            f"{source.place(row)}, column `{column}`: the time is missing, but the node has a label; give it a time, "
            "or remove the label"
        )
    ordered = np.sort(times[labeled])
    shares = np.asarray(ratio) / sum(ratio)
    ends = [float(ordered[max(round(len(ordered) * share), 1) - 1]) for share in (shares[0], shares[0] + shares[1])]
    with np.errstate(invalid="ignore"):
        return {
            "train": labeled & (times <= ends[0]),
            "val": labeled & (times > ends[0]) & (times <= ends[1]),
            "test": labeled & (times > max(ends)),
        }


def split_as_before(earlier: Graph, index: NodeIndex) -> Masks:
    """Returns the splits of an earlier graph for the nodes that are in both; other nodes have none."""
    position = NodeIndex(ids_of(earlier), earlier.name).positions(index.texts)
    return {split: (position >= 0) & mask.cpu().numpy()[position] for split, mask in earlier.masks.items()}


def _sizes(groups: Sequence[int], ratio: Sequence[float]) -> Iterator[tuple[int, ...]]:
    """Yields the sizes of the three splits of every group, from the sizes of the groups.

    What is left when all shares are rounded down goes to the splits that all groups so far have left furthest behind.
    Of three splits, none is then ever a whole node ahead or behind.
    """
    shares = np.asarray(ratio) / sum(ratio)
    behind = np.zeros(len(shares))
    for size in groups:
        wanted = size * shares
        if wanted[0] < 1:
            # the first node is for training
            wanted = np.array([1, *((size - 1) * shares[1:] / (1 - shares[0]))])
        # 0.6 * 5 may be just below 3
        whole = np.floor(wanted + _ROUNDING)
        behind += wanted - whole
        # a share that is whole is not rounded up
        first = np.argsort(np.where(wanted - whole > _ROUNDING, -behind, np.inf), kind="stable")
        up = first[: size - int(whole.sum())]
        whole[up] += 1
        behind[up] -= 1
        yield tuple(whole.astype(int).tolist())


def _times(source: Source, table: pa.Table, column: str) -> np.ndarray:
    """Returns times as numbers, NaN where they are missing, [N]."""
    array, remedy = decode(table.column(column)), "write numbers, or dates such as 2026-01-31 or 2026-01-31 12:00:00"
    if pa.types.is_date(array.type):
        array = pc.cast(array, pa.timestamp("us"))
    if pa.types.is_timestamp(array.type):
        # in the unit of the column, since nanoseconds do not convert to microseconds
        array = pc.cast(array, pa.int64())
    elif pa.types.is_temporal(array.type):
        raise _wrong_type(source, column, array, remedy)
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        return np.asarray(pc.cast(array, pa.float64(), safe=False).to_numpy())
    texts = _texts(source, column, array, remedy)
    texts = pc.if_else(pc.is_in(texts, value_set=pa.array(MISSING, TEXT)), None, texts)
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            parsed = pc.cast(texts, kind)
        except pa.ArrowInvalid:
            continue
        numbers = parsed if kind == pa.float64() else pc.cast(pc.cast(parsed, pa.int64()), pa.float64())
        return np.asarray(numbers.to_numpy())
    row = next(row for row, text in enumerate(texts.to_pylist()) if text is not None and not _is_time(text))
    raise GraphError(f"{source.place(row)}, column `{column}`: {show(texts[row].as_py())} is not a time; {remedy}")


def _is_time(text: str) -> bool:
    try:
        pc.cast(pa.array([text]), pa.timestamp("us"))
    except pa.ArrowInvalid:
        return False
    return True


def _texts(source: Source, column: str, array: Any, remedy: str) -> Any:
    """Returns the values of a column as text without surrounding spaces; refuses types that are not text."""
    try:
        return pc.utf8_trim_whitespace(pc.cast(array, TEXT))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _wrong_type(source, column, array, remedy) from None


def _wrong_type(source: Source, column: str, array: Any, remedy: str) -> GraphError:
    return GraphError(f"{source.name}, column `{column}` has the type {array.type}; {remedy}")
