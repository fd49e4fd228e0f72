"""Reads pickles of arrays without running code of the file.

The unpickler accepts the few names that data files of Python 2 use, and replaces each by a passive record. Nothing of
numpy or scipy runs before the content is checked.
"""

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from lazygnn.errors import GraphError

_ITEM_TYPES = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))


def unpickle(path: Path) -> object:
    """Returns the content of a pickle: plain values, `ArrayRecord`, `MatrixRecord` or a dictionary.

    Raises a `GraphError` for a name that data files do not use, and any exception for a corrupt file.
    """
    return _Unpickler(path).load()


def to_array(record: object) -> np.ndarray:
    """Converts a record to an array of numbers."""
    if not isinstance(record, ArrayRecord):
        raise ValueError(f"`{type(record).__name__}` in place of an array")
    return record.to_numpy()


# Every record defines `__setstate__`. Otherwise a pickle could write attributes into the class of the record.


class ArrayRecord:
    """Records a `numpy.ndarray`; the pickle names it as `_reconstruct(ndarray, (0,), "b")`."""

    def __init__(self, kind: object, *_: object) -> None:
        if kind is not _NDARRAY:
            raise ValueError("array of a class other than `numpy.ndarray`")
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def to_numpy(self) -> np.ndarray:
        """Builds the array."""
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


class MatrixRecord:
    """Records a `scipy.sparse.csr_matrix`; `state` holds its attributes."""

    state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Name:
    """Records a name that appears as an argument only; it cannot be called."""

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
            raise ValueError(f"array of type {self.order!r}{self.code!r} in place of plain numbers")
        return np.dtype(self.order + self.code)


class _Neighbors(dict[Any, Any]):
    """Records a `collections.defaultdict(list)`, without the factory."""

    def __init__(self, factory: object = _LIST) -> None:
        if factory is not _LIST:
            raise ValueError("dictionary with a factory other than `list`")
        super().__init__()

    def __setstate__(self, state: object) -> None:
        raise ValueError("state for a dictionary")


class _Encoded:
    """Replaces `_codecs.encode`, with which Python 3 writes bytes in the old protocol."""

    # the result must be plain bytes, not an object of this class
    def __new__(cls, text: str, encoding: str) -> bytes:  # type: ignore[misc]
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError(f"bytes in encoding {encoding!r}")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        raise ValueError("state for bytes")


_RECORDS: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): ArrayRecord,
    ("numpy._core.multiarray", "_reconstruct"): ArrayRecord,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _ItemType,
    ("scipy.sparse.csr", "csr_matrix"): MatrixRecord,
    ("scipy.sparse._csr", "csr_matrix"): MatrixRecord,
    ("collections", "defaultdict"): _Neighbors,
    ("__builtin__", "list"): _LIST,
    ("builtins", "list"): _LIST,
    ("_codecs", "encode"): _Encoded,
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        # the unpickler allocates as many objects as the largest number, and each takes at least one byte of the file
        for opcode, number, _ in pickletools.genops(data):
            if opcode.name.endswith("PUT") and isinstance(number, int) and not 0 <= number <= len(data):
                raise ValueError(f"object number {number} in {len(data)} bytes")
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> object:
        """Returns the record for a name; refuses names that data files do not use."""
        if (module, name) not in _RECORDS:
            raise GraphError(
                f"`{self._path}` refers to `{module}.{name}`, which data files do not use; nothing was run, "
                "but do not trust the file: delete it and download it again"
            )
        return _RECORDS[module, name]
