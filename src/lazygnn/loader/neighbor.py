"""`NeighborLoader`: training nodes with a few random neighbors, hop by hop (GraphSAGE).

`R` rows of a hop, `N` nodes of the graph. The targets come first in a batch, then the nodes drawn for each hop.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader.draws import draw_in_rows
from lazygnn.loader.local import LocalIndex
from lazygnn.loader.nodes import NodeLoader
from lazygnn.ops import Adjacency, Csr


class NeighborLoader(NodeLoader):
    """Batches of training nodes with sampled neighborhoods; their matrices average over the sample.

    A node is not its own neighbor. A layer finds the node itself in the first rows of its input, since the nodes of a
    hop are the first nodes of the next one. Weights of edges are ignored. A node without neighbors has an empty row.

    Args:
        graph: The graph to sample, on its own device.
        num_neighbors: For each layer, the largest number of neighbors drawn for a node, without replacement; -1 takes
            all. The first layer is the one farthest from the targets.
        batch_size: Training nodes per batch; `None` takes all of them.
        seed: Seed of order and sampling.
    """

    def __init__(
        self, graph: Graph, num_neighbors: Sequence[int], *, batch_size: int | None = None, seed: int = 0
    ) -> None:
        check_num_neighbors(num_neighbors)
        super().__init__(graph, batch_size, seed=seed)
        self.num_neighbors = list(num_neighbors)
        self._local = LocalIndex(graph)

    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:
        """Draws the neighborhoods of the targets."""
        local, nodes, adjs = self._local, targets, list[Adjacency]()
        local.add(targets)
        for count in reversed(self.num_neighbors):
            drawn = sample_neighbors(self.graph.adj, nodes, count, generator)
            nodes = torch.cat((nodes, local.add_missing(drawn.col)))
            adjs.append(Adjacency(drawn.rowptr, local[drawn.col], drawn.value, len(nodes)))
        local.clear()
        return self._batch(nodes, len(targets), adjs[::-1])


def check_num_neighbors(num_neighbors: Sequence[int]) -> None:
    """Refuses numbers of neighbors that cannot be drawn."""
    for count in num_neighbors:
        if count < 1 and count != -1:
            raise ValueError(f"`num_neighbors` must be at least 1, or -1 for all, in every layer, got {count}")


def sample_neighbors(adj: Adjacency, nodes: Tensor, num_neighbors: int, generator: torch.Generator) -> Csr:
    """Draws at most `num_neighbors` neighbors of every node, uniformly and without replacement.

    Returns:
        The matrix that averages over the neighbors drawn, [R, N].
    """
    block = adj.select(nodes)
    row = block.row_index()
    other = block.col != nodes[row]
    row, col = row[other], block.col[other]
    count = torch.bincount(row, minlength=len(nodes))
    if num_neighbors >= 0:
        drawn = draw_in_rows(row, count, num_neighbors, generator)
        row, col, count = row[drawn], col[drawn], count.clamp(max=num_neighbors)
    value = count.to(adj.value.dtype).reciprocal()[row]
    return Csr.from_sorted(row, col, value, (len(nodes), adj.num_cols))
