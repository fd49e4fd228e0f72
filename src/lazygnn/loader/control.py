"""`ControlLoader`: training nodes with a few random neighbors to compute and all neighbors to read (VR-GCN).

`R` rows of a layer, `N` nodes of the graph. The targets come first in a batch, then the nodes drawn for each layer,
then the other neighbors.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from lazygnn.batch import Batch, ControlBatch
from lazygnn.graph import Graph
from lazygnn.loader.draws import draw_in_rows
from lazygnn.loader.local import LocalIndex
from lazygnn.loader.nodes import NodeLoader
from lazygnn.ops import Adjacency, Csr


class Neighborhood(NamedTuple):
    """The node itself and some of its `n` neighbors, `d` of them, for each of some rows; both matrices are [R, N]."""

    mean: Csr  # neighbors weighted by n / d: the sum has the right expectation
    noise: Csr  # neighbors weighted by the root of n / d: a sum of independent noise has the right variance


class ControlLoader(NodeLoader):
    """Batches of training nodes with sampled neighborhoods, and with all neighbors of the nodes computed.

    Args:
        graph: The graph to sample, on its own device.
        num_layers: Layers to sample neighbors for.
        num_neighbors: Largest number of neighbors drawn for a node, without replacement, beside the node itself.
        batch_size: Training nodes per batch; `None` takes all of them.
        seed: Seed of order and sampling.
    """

    def __init__(
        self, graph: Graph, num_layers: int, *, num_neighbors: int, batch_size: int | None = None, seed: int = 0
    ) -> None:
        for name, value in {"num_layers": num_layers, "num_neighbors": num_neighbors}.items():
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}")
        super().__init__(graph, batch_size, seed=seed)
        self.num_layers, self.num_neighbors = num_layers, num_neighbors
        self._local = LocalIndex(graph)

    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:
        """Draws the neighborhoods of the targets, then adds all neighbors of the nodes that a layer computes."""
        local, nodes, rows = self._local, targets, targets
        mean, noise = list[Adjacency](), list[Adjacency]()
        local.add(targets)
        for _ in range(self.num_layers):
            rows, drawn = nodes, sample_neighborhood(self.graph.adj, nodes, self.num_neighbors, generator)
            nodes = torch.cat((nodes, local.add_missing(drawn.mean.col)))
            mean.append(_local(drawn.mean, local, len(nodes)))
            noise.append(_local(drawn.noise, local, len(nodes)))
        block = self.graph.adj.select(rows)
        everyone = torch.cat((nodes, local.add_missing(block.col)))
        complete = _local(block, local, len(everyone))
        local.clear()
        batch = self._batch(everyone, len(targets), mean[::-1], inputs=nodes)
        return ControlBatch(**vars(batch), complete=complete, noise=noise[::-1])


def sample_neighborhood(adj: Adjacency, nodes: Tensor, num_neighbors: int, generator: torch.Generator) -> Neighborhood:
    """Takes every node itself, and draws at most `num_neighbors` others of its row, uniformly, without replacement.

    A number of -1 takes all of them.
    """
    block = adj.select(nodes)
    row = block.row_index()
    own = block.col == nodes[row]
    other = (~own).nonzero()[:, 0]
    count = torch.bincount(row[other], minlength=len(nodes))
    most = adj.num_cols if num_neighbors == -1 else num_neighbors
    drawn = other[draw_in_rows(row[other], count, most, generator)]
    kept = torch.cat((own.nonzero()[:, 0], drawn)).sort().values
    scale = (count / count.clamp(min=1, max=most)).to(block.value.dtype)
    scale = torch.where(own[kept], 1, scale[row[kept]])
    value, shape = block.value[kept], block.shape
    mean = Csr.from_sorted(row[kept], block.col[kept], value * scale, shape)
    return Neighborhood(mean, Csr(mean.rowptr, mean.col, value * scale.sqrt(), mean.num_cols))


def _local(block: Csr, local: LocalIndex, num_cols: int) -> Adjacency:
    return Adjacency(block.rowptr, local[block.col], block.value, num_cols)
