"""The parts of a graph, and blocks of rows of its adjacency.

`N` nodes, `P` parts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lazygnn.ops import Adjacency, row_chunks


@dataclass(frozen=True, eq=False)
class Partition:
    """Assigns every node to one part; no part is empty, and the nodes of a part are in rising order."""

    order: Tensor  # [N] int64: nodes part by part, the argument of `Graph.permute`
    ptr: Tensor  # [P + 1] int64: part p is order[ptr[p]:ptr[p + 1]]
    method: str = "contiguous"  # what found the parts; never `auto`
    engine: str | None = None  # package and version, such as `pymetis 2025.2.2`, if one found them

    @property
    def num_parts(self) -> int:
        """Returns the number of parts."""
        return len(self.ptr) - 1

    def part_of(self) -> Tensor:
        """Returns the part of every node before the permutation, [N]."""
        part_of = torch.empty_like(self.order)
        part_of[self.order] = torch.repeat_interleave(self.ptr.diff())
        return part_of

    def edge_cut(self, adj: Adjacency) -> float:
        """Returns the share of undirected edges between different parts; `adj` is not permuted."""
        part_of, cut = self.part_of().int(), 0
        for rows, rowptr, cols in row_blocks(adj):
            cut += int((torch.repeat_interleave(part_of[rows], rowptr.diff()) != part_of[cols]).sum())
        num_edges = len(adj.col) - adj.num_rows
        return cut / num_edges if num_edges else 0.0


def from_parts(part_of: Tensor, num_parts: int, method: str, engine: str | None = None) -> Partition:
    """Returns a partition from the part of every node, [N]."""
    ptr = torch.zeros(num_parts + 1, dtype=torch.long)
    torch.cumsum(torch.bincount(part_of, minlength=num_parts), 0, out=ptr[1:])
    return Partition(torch.argsort(part_of, stable=True), ptr, method, engine)


def fill_empty(part_of: Tensor, num_parts: int) -> Tensor:
    """Moves the last node of the largest part to each empty part in turn."""
    sizes = torch.bincount(part_of, minlength=num_parts).numpy()
    empty = np.flatnonzero(sizes == 0).tolist()
    if not empty:
        return part_of
    found = from_parts(part_of, num_parts, "")
    for part in empty:
        largest = int(sizes.argmax())
        sizes[largest] -= 1
        sizes[part] = 1
        part_of[found.order[found.ptr[largest] + sizes[largest]]] = part
    return part_of


def equal_slices(num_nodes: int, num_parts: int) -> Tensor:
    """Returns the bounds of equal slices of the node order, [P + 1]; their sizes differ by at most one."""
    return torch.arange(num_parts + 1) * num_nodes // num_parts


def row_blocks(adj: Adjacency) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yields a matrix a few million entries at a time: rows, row pointers from 0, columns."""
    rowptr = adj.rowptr.cpu().long()
    for start, stop in row_chunks(rowptr):
        first, last = int(rowptr[start]), int(rowptr[stop])
        yield slice(start, stop), rowptr[start : stop + 1] - first, adj.col[first:last].cpu()


def neighbor_blocks(adj: Adjacency) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
    """Yields the same without self-loops: rows, number of neighbors of each, neighbors."""
    for rows, block_ptr, cols in row_blocks(adj):
        row = torch.repeat_interleave(block_ptr.diff())
        others = cols != row + rows.start
        counts = torch.bincount(row[others], minlength=len(block_ptr) - 1)
        yield rows, counts.numpy(), cols[others].numpy()
