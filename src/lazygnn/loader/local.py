"""Positions of nodes in a batch."""

import torch
from torch import Tensor

from lazygnn.graph import Graph


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

    def __getitem__(self, nodes: Tensor) -> Tensor:
        """Returns the positions of nodes; -1 for those outside the batch."""
        return self._local[nodes]

    def clear(self) -> Tensor:
        """Returns the nodes of the batch in their order and removes them."""
        nodes = torch.cat(self._added)
        self._local[nodes] = -1
        self._added, self._count = [], 0
        return nodes
