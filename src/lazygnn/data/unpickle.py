"""Reads pickles of arrays without running code of the file.

The reader knows the few operations and names that data files use, and replaces each name by a passive record. Nothing
of numpy or scipy runs before the content is checked. Time and memory are in proportion to the file: a container
appears in one place alone, and the keys of dictionaries are numbers and text.
"""

import math
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lazygnn.errors import GraphError
from lazygnn.untrusted.budget import budget

_ITEM_TYPES = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"))


def unpickle(path: Path) -> object:
    """Returns the content of a pickle: plain values, `ArrayRecord`, `MatrixRecord` or a dictionary.

    Raises a `GraphError` for a name that data files do not use, and any exception for a corrupt file.
    """
    return _Reader(path).read()


def to_array(record: object) -> np.ndarray:
    """Converts a record to an array of numbers."""
    if not isinstance(record, ArrayRecord):
        raise ValueError(f"`{type(record).__name__}` in place of an array")
    return record.to_numpy()


class ArrayRecord:
    """Records a `numpy.ndarray`; the pickle names it as `_reconstruct(ndarray, (0,), "b")`."""

    def __init__(self, kind: object, *_: object) -> None:
        if kind is not _NDARRAY:
            raise ValueError("array of a class other than `numpy.ndarray`")
        self.state: tuple[Any, ...] = ()

    def set_state(self, state: tuple[Any, ...]) -> None:
        """Stores shape, type and content."""
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

    def set_state(self, state: object) -> None:
        """Stores the attributes."""
        self.state = state


class _Name:
    """Records a name that appears as an argument only; it cannot be called."""


_LIST, _NDARRAY = _Name(), _Name()


class _ItemType:
    """Records a `numpy.dtype`."""

    def __init__(self, code: str, *_: object) -> None:
        self.code = code
        self.order = "|"

    def set_state(self, state: tuple[Any, ...]) -> None:
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


class _Encoded:
    """Replaces `_codecs.encode`, with which Python 3 writes bytes in the old protocol."""

    # the result must be plain bytes, not an object of this class
    def __new__(cls, text: str, encoding: str) -> bytes:  # type: ignore[misc]
        if not isinstance(text, str) or encoding != "latin1":
            raise ValueError(f"bytes in encoding {encoding!r}")
        return text.encode("latin1")


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

# the files of the largest data set have 5 MB
_MAX_BYTES = 2**28
# bytes in memory of a number or a short text, and of any other object, at most
_VALUE, _OBJECT = 64, 192
# values that are pushed as they are
_VALUES = frozenset(
    [
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
    ]
)
_CONSTANTS: dict[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_IGNORED = frozenset(("PROTO", "FRAME"))
# a tuple that appears in several places, such as a shape, is short
_MAX_SHARED = 8


class _Reader:
    """Follows the operations of a pickle with a stack and a memory of its own."""

    def __init__(self, path: Path) -> None:
        self._path, self._size, self._claimed = path, path.stat().st_size, 0
        self._budget = budget(self._size)
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memory: dict[int, Any] = {}
        self._operations: dict[str, Callable[[Any], None]] = {
            "MARK": lambda _: self._marks.append(len(self._stack)),
            "POP": lambda _: self._pop(),
            "EMPTY_TUPLE": lambda _: self._stack.append(()),
            "EMPTY_LIST": lambda _: self._stack.append([]),
            "EMPTY_DICT": lambda _: self._stack.append({}),
            "TUPLE": lambda _: self._stack.append(_tuple(self._since_mark())),
            "TUPLE1": lambda _: self._stack.append(_tuple(self._last(1))),
            "TUPLE2": lambda _: self._stack.append(_tuple(self._last(2))),
            "TUPLE3": lambda _: self._stack.append(_tuple(self._last(3))),
            "LIST": lambda _: self._stack.append(self._since_mark()),
            "DICT": lambda _: self._stack.append(_fill({}, self._since_mark())),
            "APPEND": lambda _: self._extend(self._last(1)),
            "APPENDS": lambda _: self._extend(self._since_mark()),
            "SETITEM": lambda _: self._set(self._last(2)),
            "SETITEMS": lambda _: self._set(self._since_mark()),
            "GLOBAL": self._name,
            "STACK_GLOBAL": lambda _: self._name(" ".join(map(str, self._last(2)))),
            "REDUCE": lambda _: self._call(*self._last(2)),
            "NEWOBJ": lambda _: self._call(*self._last(2)),
            "BUILD": lambda _: self._build(self._pop()),
            "PUT": self._put,
            "BINPUT": self._put,
            "LONG_BINPUT": self._put,
            "MEMOIZE": lambda _: self._put(len(self._memory)),
            "GET": self._get,
            "BINGET": self._get,
            "LONG_BINGET": self._get,
        }

    def read(self) -> object:
        if self._size > _MAX_BYTES:
            raise ValueError(f"a pickle of {self._size} bytes, more than {_MAX_BYTES}")
        for opcode, value, _ in pickletools.genops(self._path.read_bytes()):
            name = opcode.name
            if name == "STOP":
                return self._pop()
            self._claim(_VALUE if name in _VALUES else _OBJECT)
            if name in _VALUES:
                self._stack.append(value)
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name not in _IGNORED:
                if name not in self._operations:
                    raise ValueError(f"operation {name}, which data files do not use")
                self._operations[name](value)
        raise ValueError("no end")

    def _claim(self, num_bytes: int) -> None:
        self._claimed += num_bytes
        if self._claimed > self._budget:
            raise ValueError(f"content that takes more than {self._budget} bytes of memory in {self._size} bytes")

    def _pop(self) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0):
            raise ValueError("a value is missing")
        return self._stack.pop()

    def _last(self, count: int) -> list[Any]:
        return [self._pop() for _ in range(count)][::-1]

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    def _top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise ValueError(f"no {kind.__name__} to add to")
        return self._stack[-1]

    def _extend(self, values: list[Any]) -> None:
        self._top(list).extend(values)

    def _set(self, values: list[Any]) -> None:
        _fill(self._top(dict), values)

    def _put(self, number: int) -> None:
        self._memory[int(number)] = self._stack[-1]

    def _get(self, number: int) -> None:
        value = self._memory[int(number)]
        short = isinstance(value, tuple) and len(value) <= _MAX_SHARED and not any(map(_is_container, value))
        # a container in several places takes exponential time to print, to compare or to copy
        if _is_container(value) and not short:
            raise ValueError(f"a {type(value).__name__} in several places")
        self._stack.append(value)

    def _name(self, name: str) -> None:
        module, _, attribute = name.partition(" ")
        if (module, attribute) not in _RECORDS:
            raise GraphError(
                f"`{self._path}` refers to `{module}.{attribute}`, which data files do not use; nothing was run, "
                "but do not trust the file: delete it and download it again"
            )
        self._stack.append(_RECORDS[module, attribute])

    def _call(self, kind: Any, arguments: Any) -> None:
        if not isinstance(kind, type) or not isinstance(arguments, tuple):
            raise ValueError("a call of something else than a name")
        made = kind(*arguments)
        # the same text may be encoded many times
        self._claim(len(made) if isinstance(made, bytes) else 0)
        self._stack.append(made)

    def _build(self, state: Any) -> None:
        target = self._stack[-1]
        if not isinstance(target, ArrayRecord | MatrixRecord | _ItemType):
            raise ValueError(f"state for a {type(target).__name__}")
        target.set_state(state)


def _is_container(value: object) -> bool:
    return isinstance(value, tuple | list | dict)


def _tuple(values: list[Any]) -> tuple[Any, ...]:
    # the state of an array holds a shape
    if any(isinstance(value, tuple) and any(map(_is_container, value)) for value in values):
        raise ValueError("a tuple of tuples of tuples")
    return tuple(values)


def _fill(target: dict[Any, Any], values: list[Any]) -> dict[Any, Any]:
    if len(values) % 2:
        raise ValueError("a key without a value")
    for key, value in zip(values[::2], values[1::2], strict=True):
        if type(key) not in (int, str):
            raise ValueError(f"a key of type {type(key).__name__}")
        target[key] = value
    return target
