"""Positions of nodes in a batch, and matrices over them."""

import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.ops import Adjacency, Csr


class LocalIndex:
    """Numbers the nodes of a batch from 0, in the order in which they are added.

    One object serves batch after batch, since its array is as long as the graph.
    """

    def __init__(self, graph: Graph) -> None:
        # -1 for nodes outside the batch
        self._local = torch.full((graph.num_nodes,), -1, dtype=graph.adj.col.dtype, device=graph.device)
        self._added: list[Tensor] = []
        self._count = 0

    def add(self, nodes: Tensor) -> None:
        """Adds nodes that are not in the batch yet."""
        start, self._count = self._count, self._count + len(nodes)
        self._local[nodes] = torch.arange(start, self._count, dtype=self._local.dtype, device=nodes.device)
        self._added.append(nodes)

    def add_missing(self, nodes: Tensor) -> Tensor:
        """Adds those of `nodes` that are not in the batch yet, in rising order, and returns them."""
        missing: Tensor = nodes[self._local[nodes] < 0].unique().long()
        self.add(missing)
        return missing

    def __len__(self) -> int:
        """Returns the number of nodes in the batch."""
        return self._count

    def __getitem__(self, nodes: Tensor) -> Tensor:
        """Returns the positions of nodes; -1 for those outside the batch."""
        return self._local[nodes]

    def clear(self) -> Tensor:
        """Returns the nodes of the batch in their order and removes them."""
        nodes = torch.cat(self._added)
        self._local[nodes] = -1
        self._added, self._count = [], 0
        return nodes


def stack_rows(blocks: list[Csr], local: LocalIndex, num_cols: int) -> Adjacency:
    """Stacks blocks of rows and makes their columns local; drops entries in columns outside the batch."""
    col = torch.cat([local[block.col] for block in blocks])
    value = torch.cat([block.value for block in blocks])
    count = torch.cat([block.rowptr.diff() for block in blocks])
    rowptr = torch.zeros(len(count) + 1, dtype=torch.long, device=col.device)
    torch.cumsum(count, 0, out=rowptr[1:])
    inside = col >= 0
    if not bool(inside.all()):
        kept = torch.zeros(len(col) + 1, dtype=torch.long, device=col.device)
        torch.cumsum(inside, 0, out=kept[1:])
        rowptr, col, value = kept[rowptr], col[inside], value[inside]
    return Adjacency(rowptr.to(col.dtype), col, value, num_cols)


def transpose_among_targets(adj: Adjacency) -> Adjacency:
    """Transposes the square block of targets, [T, V].

    Edges into the halo were not drawn. Stored gradients of the halo use the edges drawn in the other direction, since
    the matrix of the whole graph is symmetric.
    """
    row, col = adj.row_index(), adj.col.long()
    inner = col < adj.num_rows
    row, col = torch.where(inner, col, row), torch.where(inner, row, col)
    order = (row * adj.num_cols + col).argsort()
    return Adjacency.from_sorted(row[order], col[order], adj.value[order], adj.shape)
