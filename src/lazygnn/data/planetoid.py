"""Reads the Planetoid citation graphs (cora, citeseer, pubmed) from their original files.

The files are pickles of Python 2. The unpickler here knows the few names they use and stands in a passive record for
each, so that nothing of numpy or scipy, let alone of the file, runs before the content is checked.
"""

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.ops import Csr

T = TypeVar("T")

_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_NUM_VAL = 500
_ITEM_TYPES = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))


def read_planetoid(folder: Path, name: str) -> Graph:
    """Reads `ind.<name>.{x,tx,allx,y,ty,ally,graph,test.index}` with the public split.

    Training nodes are the rows of `y`, validation nodes the 500 rows after them, test nodes those of `test.index`. A
    node of the test range that the index leaves out (citeseer has 15) gets empty features, label -1 and no split.

    Args:
        folder: Folder of the files, or one whose subfolder `raw` holds them.
        name: Name in the file names, such as `cora`.
    """
    path = {part: folder / f"ind.{name}.{part}" for part in _PARTS}
    if not any(file.is_file() for file in path.values()):
        path = {part: folder / "raw" / f"ind.{name}.{part}" for part in _PARTS}
    x, tx, allx = (_unpickle(path[part], _to_matrix) for part in ("x", "tx", "allx"))
    y, ty, ally = (_unpickle(path[part], _to_labels) for part in ("y", "ty", "ally"))
    test = _read_test_index(path["test.index"], len(ally.label))

    _check_equal(path["x"], "rows", x.num_rows, path["y"], len(y.label))
    _check_equal(path["allx"], "rows", allx.num_rows, path["ally"], len(ally.label))
    _check_equal(path["tx"], "rows", tx.num_rows, path["ty"], len(ty.label))
    _check_equal(path["tx"], "rows", tx.num_rows, path["test.index"], len(test))
    for part, other in (("x", x), ("tx", tx)):
        _check_equal(path[part], "columns", other.num_cols, path["allx"], allx.num_cols)
    for part, labels in (("y", y), ("ty", ty)):
        _check_equal(path[part], "classes", labels.num_classes, path["ally"], ally.num_classes)
    if len(y.label) > len(ally.label):
        raise GraphError(
            f"`{path['y']}` has {len(y.label)} rows, more than the {len(ally.label)} of `{path['ally']}`, which begins "
            "with them; take both from the same release"
        )

    num_nodes = max(allx.num_rows, int(test.max(initial=-1)) + 1)
    label = np.full(num_nodes, -1)
    label[: len(ally.label)] = ally.label
    label[test] = ty.label
    end_train, end_val = len(y.label), min(len(y.label) + _NUM_VAL, allx.num_rows)
    return Graph.from_edges(
        _unpickle(path["graph"], lambda record: _to_edges(record, num_nodes)),
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
    # position in `tx` of every entry: the start of its row, then one further each time
    first = np.cumsum(length) - length
    at = np.repeat(start - first, length) + np.arange(len(tx.data))
    return Csr.from_arrays(
        np.concatenate(([0], np.cumsum(count))),
        np.concatenate((allx.indices, tx.indices[at])),
        np.concatenate((allx.data, tx.data[at])),
        allx.num_cols,
    )


def _read_test_index(path: Path, num_known: int) -> np.ndarray:
    try:
        words = path.read_text(encoding="ascii").split()
        test = np.array([int(word) for word in words], dtype=np.int64)
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, ValueError, OverflowError) as error:
        raise GraphError(f"`{path}` is not a list of node numbers: {error}; download it again") from error
    if not len(test):
        raise GraphError(f"`{path}` is empty; download it again")
    # everything before the test range has its row in `allx`, and the range is little longer than the list
    low, high = int(test.min()), int(test.max())
    if low < num_known or high >= num_known + 2 * len(test):
        worst = low if low < num_known else high
        raise GraphError(
            f"`{path}` names node {worst}; {len(test)} test nodes after {num_known} others go from {num_known} "
            f"to at most {num_known + 2 * len(test) - 1}; take all files from the same release"
        )
    if len(np.unique(test)) != len(test):
        unique, count = np.unique(test, return_counts=True)
        raise GraphError(f"`{path}` names node {unique[count > 1][0]} twice; download it again")
    return test


def _check_equal(path: Path, what: str, found: int, other: Path, expected: int) -> None:
    if found != expected:
        raise GraphError(f"`{path}` has {found} {what}, but `{other}` has {expected}; take both from the same release")


def _missing(path: Path) -> GraphError:
    return GraphError(f"`{path}` is missing; put the file there or download the data set again")


def _unpickle(path: Path, convert: Callable[[object], T]) -> T:
    try:
        return convert(_Unpickler(path).load())
    except GraphError:
        raise
    except FileNotFoundError:
        raise _missing(path) from None
    # a damaged pickle can fail in any way, from EOFError to RecursionError
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise GraphError(f"`{path}` does not hold what it should ({reason}); download it again") from error


class _Unpickler(pickle.Unpickler):
    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        # the unpickler makes room for as many objects as the largest number says, and each takes a byte at least
        for opcode, number, _ in pickletools.genops(data):
            if opcode.name.endswith("PUT") and isinstance(number, int) and not 0 <= number <= len(data):
                raise ValueError(f"object number {number} in {len(data)} bytes")
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> object:
        """Gives the stand-in for a name, and refuses the names that no file of this kind needs."""
        if (module, name) not in _STAND_INS:
            raise GraphError(
                f"`{self._path}` asks for `{module}.{name}`, which a data file has no need of; nothing was run, "
                "but do not trust the file: delete it and download it again"
            )
        return _STAND_INS[module, name]


# Every stand-in defines `__setstate__`. Without one, a pickle could write attributes into the stand-in itself.


class _Name:
    """A name that appears as an argument only and cannot be called."""

    def __setstate__(self, state: object) -> None:
        raise ValueError("state for a name")


_LIST, _NDARRAY = _Name(), _Name()


class _ItemType:
    """Records a `numpy.dtype`."""

    def __init__(self, code: str, *_: object) -> None:
        self.code = code
        self.order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def to_numpy(self) -> np.dtype[Any]:
        if self.code not in _ITEM_TYPES or self.order not in ("<", ">", "=", "|"):
            raise ValueError(f"array of type {self.order!r}{self.code!r}, where plain numbers belong")
        return np.dtype(self.order + self.code)


class _Array:
    """Records a `numpy.ndarray`; the pickle names it as `_reconstruct(ndarray, (0,), "b")`."""

    def __init__(self, kind: object, *_: object) -> None:
        if kind is not _NDARRAY:
            raise ValueError("array of a class other than `numpy.ndarray`")
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def to_numpy(self) -> np.ndarray:
        _, shape, item_type, fortran, data = self.state
        if not isinstance(item_type, _ItemType):
            raise ValueError("array without a type")
        dtype = item_type.to_numpy()
        raw = data.encode("latin1") if isinstance(data, str) else data
        if not isinstance(raw, bytes) or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"array of shape {shape} with content of type `{type(data).__name__}`")
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise ValueError(f"array of shape {shape} and type {dtype} with {len(raw)} bytes")
        array = np.frombuffer(raw, dtype=dtype).reshape(shape, order="F" if fortran else "C")
        return array.astype(dtype.newbyteorder("="))


class _SparseMatrix:
    """Records a `scipy.sparse.csr_matrix`."""

    state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Neighbors(dict[Any, Any]):
    """Stands for `collections.defaultdict(list)`, without the factory."""

    def __init__(self, factory: object = _LIST) -> None:
        if factory is not _LIST:
            raise ValueError("dictionary with a factory other than `list`")
        super().__init__()

    def __setstate__(self, state: object) -> None:
        raise ValueError("state for a dictionary")


class _Encoded:
    """Stands for `_codecs.encode`, by which Python 3 writes bytes in the old protocol."""

    # the result has to be plain bytes, not an object of this class
    def __new__(cls, text: str, encoding: str) -> bytes:  # type: ignore[misc]
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError(f"bytes in encoding {encoding!r}")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        raise ValueError("state for bytes")


_STAND_INS: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _ItemType,
    ("scipy.sparse.csr", "csr_matrix"): _SparseMatrix,
    ("scipy.sparse._csr", "csr_matrix"): _SparseMatrix,
    ("collections", "defaultdict"): _Neighbors,
    ("__builtin__", "list"): _LIST,
    ("builtins", "list"): _LIST,
    ("_codecs", "encode"): _Encoded,
}


def _to_array(record: object) -> np.ndarray:
    if not isinstance(record, _Array):
        raise ValueError(f"`{type(record).__name__}` where an array belongs")
    return record.to_numpy()


def _to_matrix(record: object) -> _Matrix:
    if not isinstance(record, _SparseMatrix) or not isinstance(record.state, dict):
        raise ValueError(f"`{type(record).__name__}` where a sparse matrix belongs")
    state = record.state
    num_rows, num_cols = state["_shape"] if "_shape" in state else state["shape"]
    indptr, indices, data = (_to_array(state[field]) for field in ("indptr", "indices", "data"))
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu" or data.dtype.kind not in "biuf":
        raise ValueError(f"sparse matrix with indices of type {indices.dtype} and pointers of type {indptr.dtype}")
    if type(num_rows) is not int or type(num_cols) is not int:
        raise ValueError(f"sparse matrix of shape ({num_rows!r}, {num_cols!r})")
    if indptr.shape != (num_rows + 1,) or indices.shape != data.shape or indices.ndim != 1:
        raise ValueError(f"sparse matrix of {num_rows} rows with {indptr.shape} pointers and {indices.shape} entries")
    indptr, indices = indptr.astype(np.int64), indices.astype(np.int64)
    if indptr[0] != 0 or indptr[-1] != len(data) or (np.diff(indptr) < 0).any():
        raise ValueError(f"row pointers that do not rise from 0 to {len(data)}")
    if len(indices) and not 0 <= indices.min() <= indices.max() < num_cols:
        worst = indices.min() if indices.min() < 0 else indices.max()
        raise ValueError(f"column {worst} in a matrix of {num_cols} columns")
    if not np.isfinite(data).all():
        raise ValueError("a feature that is not finite")
    return _Matrix(indptr, indices, data.astype(np.float32), num_cols)


def _to_labels(record: object) -> _Labels:
    one_hot = _to_array(record)
    if one_hot.ndim != 2 or one_hot.dtype.kind not in "biuf" or not one_hot.shape[1]:
        raise ValueError(f"labels of shape {one_hot.shape} and type {one_hot.dtype}, where a column per class belongs")
    wrong = ~np.isin(one_hot, (0, 1)).all(axis=1) | (one_hot.sum(axis=1) > 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"row {row} is {one_hot[row].tolist()}; a row of labels is zero but for a single one")
    return _Labels(np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1), one_hot.shape[1])


def _to_edges(record: object, num_nodes: int) -> np.ndarray:
    if not isinstance(record, dict):
        raise ValueError(f"`{type(record).__name__}` where a dictionary of neighbors belongs")
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
