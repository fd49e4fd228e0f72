"""Writes a graph, sorted by its parts, as a folder, without a sorted copy of its edges and features in memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from torch import Tensor

from lazygnn.data.folder import ArrayWriter, header_of, staged_folder, to_arrays
from lazygnn.data.folder_header import ArrayName, write_header
from lazygnn.graph import Graph
from lazygnn.ops import Csr, row_chunks

# these grow with the edges and the features
_STREAMED: set[ArrayName] = {"rowptr", "col", "value", "x", "x_rowptr", "x_col", "x_value"}
_NUMBERS_AT_ONCE = 1 << 22


def save_sorted(graph: Graph, order: Tensor, path: str | Path) -> None:
    """Writes the folder that `save_folder` writes of `graph.permute(order)`, a few million numbers at a time.

    Args:
        graph: The graph before it is sorted; its `part_ptr` and `part_engine` are those of the sorted one.
        order: Node `order[i]` gets position `i`.
        path: The folder.
    """
    arrays, order = to_arrays(graph), order.cpu().long()
    adj, x = graph.adj.to("cpu"), graph.x.to("cpu")
    with staged_folder(Path(path)) as folder:
        _write_rows(folder, "", adj.permuted_rowptr(order), adj.permuted_blocks(order), adj)
        if isinstance(x, Csr):
            rowptr = x.permuted_rowptr(order)
            parts = (x.select(order[start:stop]) for start, stop in row_chunks(rowptr))
            _write_rows(folder, "x_", rowptr, ((part.col, part.value) for part in parts), x)
        else:
            with ArrayWriter(folder / "x.npy", arrays["x"].dtype, graph.in_channels) as file:
                for nodes in order.split(max(_NUMBERS_AT_ONCE // graph.in_channels, 1)):
                    file.append(x[nodes].numpy())
        for name, array in arrays.items():
            if name not in _STREAMED:
                np.save(folder / f"{name}.npy", array if name == "part_ptr" else array[order.numpy()])
        write_header(folder, header_of(graph, tuple(arrays)))


def _write_rows(folder: Path, prefix: str, rowptr: Tensor, blocks: Iterator[tuple[Tensor, Tensor]], like: Csr) -> None:
    np.save(folder / f"{prefix}rowptr.npy", rowptr.numpy())
    cols, values = folder / f"{prefix}col.npy", folder / f"{prefix}value.npy"
    with (
        ArrayWriter(cols, like.col[:0].numpy().dtype) as col_file,
        ArrayWriter(values, like.value[:0].numpy().dtype) as value_file,
    ):
        for col, value in blocks:
            col_file.append(col.numpy())
            value_file.append(value.numpy())
