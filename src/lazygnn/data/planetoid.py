"""Reads the Planetoid citation graphs (cora, citeseer, pubmed) from their original files, pickles of Python 2."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from lazygnn.checks import first_outside, rises
from lazygnn.data.raw import unreadable
from lazygnn.data.unpickle import MatrixRecord, to_array, unpickle
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.ops import Csr
from lazygnn.untrusted.budget import check_width

T = TypeVar("T")

_FILES = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_NUM_VAL = 500


def read_planetoid(folder: Path, name: str) -> Graph:
    """Reads `ind.<name>.{x,tx,allx,y,ty,ally,graph,test.index}` with the public split.

    Training nodes are the rows of `y`, validation nodes the next 500 rows, test nodes those of `test.index`. A node of
    the test range that is missing in the index (citeseer has 15) gets empty features, label -1 and no split.

    Args:
        folder: Folder of the files, or the parent of a folder `raw` with them.
        name: Name in the file names, such as `cora`.
    """
    path = {file: folder / f"ind.{name}.{file}" for file in _FILES}
    if not any(found.is_file() for found in path.values()):
        path = {file: folder / "raw" / f"ind.{name}.{file}" for file in _FILES}
    x, tx, allx = (_read(path[file], _to_matrix) for file in ("x", "tx", "allx"))
    y, ty, ally = (_read(path[file], _to_labels) for file in ("y", "ty", "ally"))
    test = _read_test_index(path["test.index"], len(ally.label))

    _check_equal(path["x"], "rows", x.num_rows, path["y"], len(y.label))
    _check_equal(path["allx"], "rows", allx.num_rows, path["ally"], len(ally.label))
    _check_equal(path["tx"], "rows", tx.num_rows, path["ty"], len(ty.label))
    _check_equal(path["tx"], "rows", tx.num_rows, path["test.index"], len(test))
    for file, other in (("x", x), ("tx", tx)):
        _check_equal(path[file], "columns", other.num_cols, path["allx"], allx.num_cols)
    for file, labels in (("y", y), ("ty", ty)):
        _check_equal(path[file], "classes", labels.num_classes, path["ally"], ally.num_classes)
    if len(y.label) > len(ally.label):
        raise GraphError(
            f"`{path['y']}` has {len(y.label)} rows, more than the {len(ally.label)} of `{path['ally']}`, which starts "
            "with them; take both from the same release"
        )

    num_nodes = max(allx.num_rows, int(test.max(initial=-1)) + 1)
    label = np.full(num_nodes, -1)
    label[: len(ally.label)] = ally.label
    label[test] = ty.label
    end_train, end_val = len(y.label), min(len(y.label) + _NUM_VAL, allx.num_rows)
    return Graph.from_edges(
        _read(path["graph"], lambda record: _to_edges(record, num_nodes)),
        _stack(allx, tx, test, num_nodes),
        label,
        train_mask=_mask(np.arange(end_train), label),
        val_mask=_mask(np.arange(end_train, end_val), label),
        test_mask=_mask(test, label),
        num_classes=ally.num_classes,
        name=name,
    )


@dataclass(frozen=True)
class _Matrix:
    indptr: np.ndarray  # [R + 1]
    indices: np.ndarray  # [E]
    data: np.ndarray  # [E]
    num_cols: int

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1


@dataclass(frozen=True)
class _Labels:
    label: np.ndarray  # [R], -1 for a row without a class
    num_classes: int


def _mask(nodes: np.ndarray, label: np.ndarray) -> np.ndarray:
    mask = np.zeros(len(label), dtype=bool)
    mask[nodes] = label[nodes] >= 0
    return mask


def _stack(allx: _Matrix, tx: _Matrix, test: np.ndarray, num_nodes: int) -> Csr:
    """Puts the rows of `tx` under those of `allx`, row `i` of `tx` at node `test[i]`."""
    order = np.argsort(test)
    count = np.zeros(num_nodes, dtype=np.int64)
    count[: allx.num_rows] = np.diff(allx.indptr)
    count[test] = np.diff(tx.indptr)
    start, length = tx.indptr[:-1][order], np.diff(tx.indptr)[order]
    # an entry of `tx` is at the start of its row plus its rank in the row
    first = np.cumsum(length) - length
    position = np.repeat(start - first, length) + np.arange(len(tx.data))
    return Csr.from_arrays(
        np.concatenate(([0], np.cumsum(count))),
        np.concatenate((allx.indices, tx.indices[position])),
        np.concatenate((allx.data, tx.data[position])),
        allx.num_cols,
    )


def _read_test_index(path: Path, num_known: int) -> np.ndarray:
    try:
        words = path.read_text(encoding="ascii").split()
        test = np.array([int(word) for word in words], dtype=np.int64)
    except FileNotFoundError as error:
        raise unreadable(path, error) from None
    except (OSError, ValueError, OverflowError) as error:
        raise GraphError(f"`{path}` is not a list of node indices: {error}; download it again") from error
    if not len(test):
        raise GraphError(f"`{path}` is empty; download it again")
    # all nodes before the test range have a row in `allx`, and few nodes of the range are missing in the list
    low, high = int(test.min()), int(test.max())
    if low < num_known or high >= num_known + 2 * len(test):
        wrong = low if low < num_known else high
        raise GraphError(
            f"`{path}` names node {wrong}; {len(test)} test nodes after {num_known} others go from {num_known} "
            f"to at most {num_known + 2 * len(test) - 1}; take all files from the same release"
        )
    if len(np.unique(test)) != len(test):
        unique, count = np.unique(test, return_counts=True)
        raise GraphError(f"`{path}` names node {unique[count > 1][0]} twice; download it again")
    return test


def _check_equal(path: Path, what: str, found: int, other: Path, expected: int) -> None:
    if found != expected:
        raise GraphError(f"`{path}` has {found} {what}, but `{other}` has {expected}; take both from the same release")


def _read(path: Path, convert: Callable[[object], T]) -> T:
    try:
        return convert(unpickle(path))
    except GraphError as error:
        raise GraphError(str(error) if str(path) in str(error) else f"`{path}`: {error}") from None
    # a corrupt pickle can fail in any way, from EOFError to RecursionError
    except Exception as error:
        raise unreadable(path, error) from error


def _to_matrix(record: object) -> _Matrix:
    if not isinstance(record, MatrixRecord) or not isinstance(record.state, dict):
        raise ValueError(f"`{type(record).__name__}` in place of a sparse matrix")
    state = record.state
    num_rows, num_cols = state["_shape"] if "_shape" in state else state["shape"]
    indptr, indices, data = (to_array(state[field]) for field in ("indptr", "indices", "data"))
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu" or data.dtype.kind not in "biuf":
        raise ValueError(f"sparse matrix with indices of type {indices.dtype} and pointers of type {indptr.dtype}")
    if type(num_rows) is not int or type(num_cols) is not int:
        raise ValueError(f"sparse matrix of shape ({num_rows!r}, {num_cols!r})")
    if indptr.shape != (num_rows + 1,) or indices.shape != data.shape or indices.ndim != 1:
        raise ValueError(f"sparse matrix of {num_rows} rows with {indptr.shape} pointers and {indices.shape} entries")
    indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    if not rises(indptr, len(data)):
        raise ValueError(f"row pointers that do not rise from 0 to {len(data)}")
    if (wrong := first_outside(indices, num_cols)) is not None:
        raise ValueError(f"column {wrong} in a matrix of {num_cols} columns")
    if not np.isfinite(data).all():
        raise ValueError("a feature that is not finite")
    check_width("the number of columns", num_cols, len(data))
    return _Matrix(indptr, indices, data.astype(np.float32), num_cols)


def _to_labels(record: object) -> _Labels:
    one_hot = to_array(record)
    if one_hot.ndim != 2 or one_hot.dtype.kind not in "biuf" or not one_hot.shape[1]:
        raise ValueError(f"labels of shape {one_hot.shape} and type {one_hot.dtype} in place of a column per class")
    check_width("the number of classes", one_hot.shape[1], len(one_hot))
    wrong = ~np.isin(one_hot, (0, 1)).all(axis=1) | (one_hot.sum(axis=1) > 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"row {row} is {one_hot[row].tolist()}; a row of labels has at most one 1, and zeros")
    return _Labels(np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1), one_hot.shape[1])


def _to_edges(record: object, num_nodes: int) -> np.ndarray:
    if not isinstance(record, dict):
        raise ValueError(f"`{type(record).__name__}` in place of a dictionary of neighbors")
    sources: list[int] = []
    targets: list[int] = []
    for node, neighbors in record.items():
        if not isinstance(neighbors, list):
            raise ValueError(f"the neighbors of node {node!r} are a `{type(neighbors).__name__}`, not a list")
        sources += [node] * len(neighbors)
        targets += neighbors
    for node in (*record, *targets):
        if type(node) is not int or not 0 <= node < num_nodes:
            raise ValueError(f"node {node!r} in a graph of {num_nodes} nodes")
    return np.array((sources, targets), dtype=np.int64).reshape(2, -1)
