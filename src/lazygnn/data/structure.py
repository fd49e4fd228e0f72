"""Checks the structure of a graph that was read from a file, whatever the format: what every computation relies on.

Arrays that are mapped from the disk are read a piece at a time. Features are read for their row pointers and columns
alone, since the values of dense ones can be larger than all the rest.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from lazygnn.checks import first_outside, rises
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.ops import Adjacency, Csr

_ENTRIES_AT_ONCE = 1 << 22


def check_structure(graph: Graph) -> None:
    """Refuses a graph with indices out of range, values that are not finite, or splits that overlap."""
    _check_adjacency(graph.adj)
    if isinstance(graph.x, Csr):
        _check_pointers("x_rowptr", graph.x, least=0)
        _check_columns("x_col", graph.x)
    for name, array in (("value", graph.adj.value), ("degree", graph.degree)):
        for _, piece in _pieces(array):
            if not bool(((piece >= 0) & piece.isfinite()).all()):
                raise GraphError(f"`{name}` holds a number that is negative or not finite")
    _check_targets(graph)
    _check_masks(graph)


def check_finite(graph: Graph) -> None:
    """Refuses features that are not finite; reads all of them."""
    name, values = ("x_value", graph.x.value) if isinstance(graph.x, Csr) else ("x", graph.x)
    for start, piece in _pieces(values):
        # minimum and maximum need no array of booleans, and NaN is passed on
        low, high = torch.aminmax(piece)
        if not (bool(low.isfinite()) and bool(high.isfinite())):
            row = start + int((~piece.isfinite()).nonzero()[0, 0])
            raise GraphError(f"`{name}` holds a number that is not finite, at {row}")


def _check_adjacency(adj: Adjacency) -> None:
    # every node has a self-loop
    _check_pointers("rowptr", adj, least=1)
    _check_columns("col", adj)
    for start, col in _pieces(adj.col, overlap=1):
        stop = start + len(col)
        starts = torch.zeros(len(col) + 1, dtype=torch.bool)
        first, last = torch.searchsorted(adj.rowptr, torch.tensor([start, stop], dtype=adj.rowptr.dtype)).tolist()
        starts[adj.rowptr[first:last].long() - start] = True
        if not bool(((col[1:] > col[:-1]) | starts[1:-1]).all()):
            raise GraphError("`col` does not rise within a row")


def _check_pointers(name: str, matrix: Csr, *, least: int) -> None:
    if len(matrix.col) != len(matrix.value) or not rises(matrix.rowptr, len(matrix.col), by=least):
        raise GraphError(f"`{name}` does not rise from 0 to {len(matrix.col)}, the number of entries")


def _check_columns(name: str, matrix: Csr) -> None:
    for _, piece in _pieces(matrix.col):
        if (wrong := first_outside(piece, matrix.num_cols)) is not None:
            raise GraphError(f"`{name}` holds {wrong}; columns go from 0 to {matrix.num_cols - 1}")


def _check_targets(graph: Graph) -> None:
    kind, outputs = graph.task.kind, graph.task.num_outputs
    for _, piece in _pieces(graph.y):
        if kind == "single-label" and (wrong := first_outside(piece + 1, outputs + 1)) is not None:
            raise GraphError(f"`y` holds label {wrong - 1}; labels go from 0 to {outputs - 1}, and -1 means unknown")
        if kind == "multi-label" and not bool(((piece == 0) | (piece == 1) | (piece == -1)).all()):
            raise GraphError("`y` holds a number other than 0, 1 and -1, which means unknown")
        if kind == "regression" and bool(piece.isinf().any()):
            raise GraphError("`y` holds an infinite number")


def _check_masks(graph: Graph) -> None:
    labeled, taken = graph.task.labeled(graph.y), torch.zeros(graph.num_nodes, dtype=torch.bool)
    for split, mask in graph.masks.items():
        # a damaged byte is neither true nor false
        if bool((mask.view(torch.uint8) > 1).any()):
            raise GraphError(f"`{split}_mask` holds bytes other than 0 and 1")
        if bool((mask & taken).any()):
            raise GraphError(f"`{split}_mask` overlaps another split at node {int((mask & taken).nonzero()[0])}")
        if bool((mask & ~labeled).any()):
            raise GraphError(f"`{split}_mask` has node {int((mask & ~labeled).nonzero()[0])}, which has no label")
        taken |= mask
    if graph.node_ids is not None and len(np.unique(graph.node_ids)) != graph.num_nodes:
        raise GraphError("`node_ids` holds an id more than once")


def _pieces(array: Tensor, overlap: int = 0) -> Iterator[tuple[int, Tensor]]:
    """Yields pieces of a few million entries with their starts; each goes on `overlap` rows into the next."""
    rows = max(1, _ENTRIES_AT_ONCE // max(1, array[:1].numel()))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows + overlap]
