"""`FrozenNeighborLoader` and `FrozenSaintLoader`: sampled nodes within a halo of stored rows (LazyGNN).

`T` targets of a batch, `V` nodes of it. The nodes with a loss come first, then the other targets, then the halo.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader.control import sample_neighborhood
from lazygnn.loader.local import LocalIndex, stack_rows, transpose_among_targets
from lazygnn.loader.neighbor import check_num_neighbors
from lazygnn.loader.nodes import NodeLoader
from lazygnn.loader.saint import SaintLoader
from lazygnn.ops import Csr


class FrozenNeighborLoader(NodeLoader):
    """Batches of nodes with sampled neighborhoods, whose farthest hop keeps its stored value in every step.

    All nodes of the graph are split into batches, not the training nodes alone: a row is stored when its node is a
    target, and the halo of another batch reads it. Neighbors drawn for all hops but the farthest have rows of their own
    in the matrix, so they are targets too. They carry gradients to their features and are stored, but have no loss, so
    that the mean loss over the batches of an epoch is that of the graph.

    A row of the matrix holds the node itself and the neighbors drawn for it. Their entries are multiplied by the number
    of neighbors over the number drawn, so that a product has the right expectation. On a graph without edge weights,
    the product with the roots of the degrees is the same whatever is drawn, so that lazy steps always contract. A
    sample may hold an edge in one direction only, so the backward pass multiplies by the transpose.

    Args:
        graph: The graph to sample, on its own device.
        num_layers: Steps per pass, which share one matrix.
        num_neighbors: For each hop, the largest number of neighbors drawn for a node, without replacement; -1 takes
            all. The last hop is the one next to the nodes with a loss, the first is the halo.
        batch_size: Nodes per batch, without their neighbors; `None` takes all of them.
        seed: Seed of order and sampling.
    """

    def __init__(
        self,
        graph: Graph,
        num_layers: int,
        num_neighbors: Sequence[int],
        *,
        batch_size: int | None = None,
        seed: int = 0,
    ) -> None:
        check_num_neighbors(num_neighbors)
        super().__init__(graph, batch_size, every_node=True, seed=seed)
        self.num_layers, self.num_neighbors = num_layers, list(num_neighbors)
        self._local = LocalIndex(graph)

    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:
        """Draws the neighborhoods of the nodes of a split."""
        local, ring, blocks = self._local, targets, list[Csr]()
        local.add(targets)
        for count in reversed(self.num_neighbors):
            blocks.append(sample_neighborhood(self.graph.adj, ring, count, generator).mean)
            ring = local.add_missing(blocks[-1].col)
        adj = stack_rows(blocks, local, len(local))
        nodes = local.clear()
        batch = self._batch(nodes, adj.num_rows, [adj] * self.num_layers, inputs=nodes[: adj.num_rows])
        weight = batch.weight.clone()
        weight[len(targets) :] = 0
        transposed = [transpose_among_targets(adj)] * self.num_layers
        return replace(batch, weight=weight, transposed=transposed)

    def sweep(self) -> Iterator[Batch]:
        """Yields batches of all nodes in node order, without neighbors; leaves epoch and position unchanged."""
        for targets in torch.arange(self.graph.num_nodes, device=self.graph.device).split(self.batch_size):
            yield self._batch(targets, len(targets), [])


class FrozenSaintLoader(SaintLoader):
    """Batches of the nodes that a sampler of GraphSAINT draws, within a halo of all their other neighbors.

    GraphSAINT drops the edges that leave a subgraph and weights the others, so that a sum over neighbors has the right
    expectation. Lazy passes start from the results of earlier ones, and such sums make them diverge: a weight can be as
    large as the number of subgraphs drawn beforehand. The halo has stored rows, so no edge needs to be dropped, and
    every edge keeps its own weight. The loss is weighted as in GraphSAINT.

    Takes the arguments of `SaintLoader`.
    """

    weights_edges: ClassVar[bool] = False

    def __len__(self) -> int:
        """Returns the number of subgraphs as `SaintLoader` does, but at least 2.

        A single subgraph does not hold every node, and histories are filled before training on several batches.
        """
        return max(super().__len__(), 2)

    def make(self, nodes: Tensor) -> Batch:
        """Adds the neighbors of the nodes of a subgraph."""
        self._local.add(nodes)
        block = self.graph.adj.select(nodes)
        self._local.add_missing(block.col)
        adj = stack_rows([block], self._local, len(self._local))
        return self._batch(self._local.clear(), len(nodes), adj)
