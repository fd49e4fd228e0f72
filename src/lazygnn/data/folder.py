"""Stores a graph as a folder of memory-mapped arrays, which may be larger than the memory.

`graph.json` describes the graph, and every array is a `.npy` file beside it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor

from lazygnn.checks import rises
from lazygnn.data.folder_header import (
    HEADER,
    REMEDY,
    ArrayName,
    Header,
    check_files,
    mask_name,
    read_header,
    write_header,
)
from lazygnn.data.structure import check_finite, check_structure
from lazygnn.errors import GraphError, reason
from lazygnn.files import replaced_folder
from lazygnn.graph import SPLITS, Graph
from lazygnn.ops import Adjacency, Csr, to_tensor
from lazygnn.task import Task
from lazygnn.untrusted.arrays import PARSING
from lazygnn.untrusted.budget import check_width

_INDEX, _FLOAT = ("int32", "int64"), ("float32", "float64")


def save_folder(graph: Graph, path: str | Path) -> None:
    """Writes a graph as a folder that `load_folder` and `load_graph` open.

    The folder appears under its name only when it is complete. It replaces an earlier graph; a folder with any other
    file is left alone.

    Args:
        graph: A graph on any device; a memory-mapped graph may be saved to its own folder.
        path: The folder.
    """
    arrays = to_arrays(graph)
    with staged_folder(Path(path)) as folder:
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        write_header(folder, header_of(graph, tuple(arrays)))


def header_of(graph: Graph, arrays: tuple[ArrayName, ...]) -> Header:
    """Returns the content of `graph.json` for a graph and the names of its arrays."""
    return Header(
        name=graph.name,
        task=graph.task.kind,
        num_nodes=graph.num_nodes,
        in_channels=graph.in_channels,
        num_outputs=graph.task.num_outputs,
        class_names=graph.class_names,
        arrays=arrays,
        part_engine=graph.part_engine,
        table_schema=graph.schema,
    )


def load_folder(path: str | Path, *, verify: bool = True) -> Graph:
    """Opens a graph that `save_folder` wrote; its arrays stay on disk, and changes to them stay in memory.

    Checks the structure of the graph: shapes, row pointers, columns, labels and splits.

    Args:
        path: The folder.
        verify: Whether to compare the checksum of every file, too, which reads all of them: about 0.6 s per GB that is
            in memory already, or 1.2 s for a graph with the shape of ogbn-products.
    """
    folder = Path(path)
    for check in (check_structure, check_finite) if verify else (check_structure,):
        # each check has a mapping of its own: the pages that it reads do not stay in the memory of this process
        graph = map_folder(folder)
        try:
            check(graph)
        except GraphError as error:
            raise GraphError(f"`{folder}`: {error}; {REMEDY}") from None
    if verify:
        check_files(folder, read_header(folder / HEADER))
    return map_folder(folder)


def map_folder(path: str | Path) -> Graph:
    """Opens a graph that was loaded before, or by another process; reads and checks names, types and shapes alone.

    Args:
        path: The folder.
    """
    folder = Path(path)
    header = read_header(folder / HEADER)
    reader = _Reader(folder, header)
    nodes, outputs = header.num_nodes, header.num_outputs
    single = header.task == "single-label"
    masks = (split for split in SPLITS if f"{split}_mask" in header.arrays)
    return Graph(
        x=reader.features(),
        y=reader.tensor("y", ("int64",), nodes) if single else reader.tensor("y", _FLOAT, nodes, outputs),
        adj=reader.adjacency(),
        degree=reader.tensor("degree", _FLOAT, nodes),
        task=Task(header.task, outputs),
        masks={split: reader.tensor(mask_name(split), ("bool",), nodes) for split in masks},
        node_ids=reader.node_ids() if "node_ids" in header.arrays else None,
        class_names=header.class_names,
        name=header.name,
        part_ptr=reader.part_ptr() if "part_ptr" in header.arrays else None,
        part_engine=header.part_engine,
        schema=header.table_schema,
    )


def read_entries(path: str | Path, name: ArrayName, start: int, stop: int) -> np.ndarray:
    """Reads entries of an array along its first axis into memory, without mapping the file.

    Args:
        path: The folder.
        name: An array that the folder has.
        start: The first entry.
        stop: The one after the last.
    """
    file = Path(path) / f"{name}.npy"
    try:
        with file.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            first = version == (1, 0)
            read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
            with PARSING:
                shape, _, dtype = read(stream)
            stride = int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
            stream.seek(start * stride, 1)
            found = np.fromfile(stream, dtype, (stop - start) * stride // dtype.itemsize)
        return found.reshape(stop - start, *shape[1:])
    except (OSError, ValueError) as error:
        raise GraphError(f"entries {start} to {stop} of `{file}` cannot be read ({error}); {REMEDY}") from error


@contextmanager
def staged_folder(path: Path) -> Iterator[Path]:
    """Yields a folder to fill, which replaces the graph at `path` if the block succeeds and is removed if not."""
    path = path.absolute()
    try:
        _check_replaceable(path)
        with replaced_folder(path) as folder:
            yield folder
            _check_replaceable(path)
    except OSError as error:
        raise GraphError(
            f"could not write `{path}`: {reason(error)}; free the space or choose another folder"
        ) from error


class ArrayWriter:
    """Writes a `.npy` file in blocks along the first axis; its length is written last.

    Args:
        path: The file.
        dtype: Type of the array.
        width: Number of columns of a two-dimensional array.
    """

    def __init__(self, path: Path, dtype: np.dtype, width: int | None = None) -> None:
        self._dtype, self._tail = dtype, () if width is None else (width,)
        self._length = 0
        self._file = path.open("wb")
        self._write_shape()

    def append(self, array: np.ndarray) -> None:
        """Appends rows."""
        np.ascontiguousarray(array, dtype=self._dtype).tofile(self._file)
        self._length += len(array)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._file:
            # numpy pads the header so that the length can grow in place
            self._file.seek(0)
            self._write_shape()

    def _write_shape(self) -> None:
        descr = np.lib.format.dtype_to_descr(self._dtype)
        shape = (self._length, *self._tail)
        np.lib.format.write_array_header_1_0(self._file, {"descr": descr, "fortran_order": False, "shape": shape})


class _Reader:
    """Opens the arrays of a folder and compares them with the header."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.folder, self.header = folder, header

    def adjacency(self) -> Adjacency:
        nodes = self.header.num_nodes
        adj = self._csr("", nodes, nodes)
        if len(adj.col) < nodes:
            path = self.folder / "col.npy"
            raise GraphError(f"`{path}` has {len(adj.col)} entries for {nodes} nodes with self-loops; {REMEDY}")
        return adj

    def features(self) -> Tensor | Csr:
        nodes, channels = self.header.num_nodes, self.header.in_channels
        if "x" in self.header.arrays:
            return self.tensor("x", _FLOAT, nodes, channels)
        x = self._csr("x_", nodes, channels)
        check_width(f"`in_channels` in `{self.folder / HEADER}`", channels, len(x.col))
        return x

    def node_ids(self) -> np.ndarray:
        path = self.folder / "node_ids.npy"
        ids = self._open("node_ids")
        if ids.shape != (self.header.num_nodes,) or ids.dtype.kind not in "iuU":
            raise _misfit(path, ids, f"{self.header.num_nodes} integers or strings")
        return ids

    def part_ptr(self) -> Tensor:
        ptr = self.tensor("part_ptr", ("int64",), -1)
        if not rises(ptr, self.header.num_nodes, by=1):
            path = self.folder / "part_ptr.npy"
            raise GraphError(f"`{path}` must rise from 0 to {self.header.num_nodes}, the number of nodes; {REMEDY}")
        return ptr

    def tensor(self, name: ArrayName, dtypes: tuple[str, ...], *shape: int) -> Tensor:
        """Opens an array as a tensor; a size of -1 matches any."""
        array = self._open(name)
        matches = len(shape) == array.ndim and all(a in (b, -1) for a, b in zip(shape, array.shape, strict=True))
        if array.dtype not in [np.dtype(dtype) for dtype in dtypes] or not matches or not array.flags.c_contiguous:
            sizes = ", ".join("any" if size < 0 else str(size) for size in shape)
            raise _misfit(self.folder / f"{name}.npy", array, f"{' or '.join(dtypes)} of shape [{sizes}] in C order")
        return to_tensor(array)

    def _csr(self, prefix: Literal["", "x_"], num_rows: int, num_cols: int) -> Csr:
        names: tuple[ArrayName, ArrayName, ArrayName] = ("rowptr", "col", "value")
        if prefix:
            names = ("x_rowptr", "x_col", "x_value")
        rowptr = self.tensor(names[0], _INDEX, num_rows + 1)
        first, last = int(rowptr[0]), int(rowptr[-1])
        if first != 0 or last < 0:
            path = self.folder / f"{names[0]}.npy"
            raise GraphError(f"`{path}` goes from {first} to {last}; it must rise from 0; {REMEDY}")
        # both arrays of indices have the same type
        col = self.tensor(names[1], (str(rowptr.dtype).removeprefix("torch."),), last)
        return Csr(rowptr, col, self.tensor(names[2], _FLOAT, last), num_cols)

    def _open(self, name: ArrayName) -> np.ndarray:
        path = self.folder / f"{name}.npy"
        if name not in self.header.arrays:
            raise GraphError(f"`{self.folder / HEADER}` does not list the array `{name}`; {REMEDY}")
        # opening a pipe would block
        if not path.is_file():
            raise GraphError(f"`{path}` is missing; {REMEDY}")
        try:
            with PARSING:
                return np.asarray(np.lib.format.open_memmap(path, mode="c"))
        # a corrupt header can fail in any way, even as `tokenize.TokenError`
        except Exception as error:
            raise GraphError(f"`{path}` cannot be read ({type(error).__name__}: {error}); {REMEDY}") from error


def _misfit(path: Path, array: np.ndarray, wanted: str) -> GraphError:
    return GraphError(f"`{path}` holds {array.dtype} of shape {list(array.shape)}, not {wanted}; {REMEDY}")


def to_arrays(graph: Graph) -> dict[ArrayName, np.ndarray]:
    """Returns the arrays of a graph; refuses types that the folder does not have."""
    adj, x = graph.adj, graph.x
    tensors: dict[ArrayName, Tensor] = {"rowptr": adj.rowptr, "col": adj.col, "value": adj.value}
    if isinstance(x, Csr):
        tensors |= {"x_rowptr": x.rowptr, "x_col": x.col, "x_value": x.value}
    else:
        tensors["x"] = x
    tensors |= {"degree": graph.degree, "y": graph.y}
    if graph.part_ptr is not None:
        tensors["part_ptr"] = graph.part_ptr
    tensors |= {mask_name(split): mask for split, mask in graph.masks.items()}
    for name, tensor in tensors.items():
        if tensor.dtype in (torch.float16, torch.bfloat16):
            raise GraphError(f"`{name}` has type {tensor.dtype}; widen the graph with `graph.to(torch.float32)` first")
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    if graph.node_ids is not None:
        arrays["node_ids"] = graph.node_ids
    return arrays


def _check_replaceable(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise GraphError(f"`{path}` is not a folder; choose another path for the graph")
    known = {HEADER, *(f"{name}.npy" for name in get_args(ArrayName))}
    others = sorted(file.name for file in path.iterdir() if file.name not in known) if path.is_dir() else []
    if others:
        raise GraphError(f"`{path}` holds `{others[0]}`, which does not belong to a graph; choose another folder")
