"""`NeighborLoader`: training nodes with a random few of their neighbours, hop by hop (GraphSAGE).

`T` targets come first in a batch, then hop after hop what was drawn, `V` nodes in all; `R` rows of a hop, `E` edges.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader.rows import NodeLoader, select_rows
from lazygnn.ops import Adjacency, Csr

# bits of the random number that orders the neighbours of a row; the row's number goes above them
_BITS = 31


class NeighborLoader(NodeLoader):
    """Batches of training nodes with sampled neighbourhoods, whose matrices take the mean of what was drawn.

    The node itself is not among its neighbours: a layer finds it in the first rows of its input, since the nodes
    of a hop are the first nodes of the next. Edges count alike, whatever their weight. A node without neighbours has
    an empty row.

    Args:
        graph: What is sampled, on the device where it lies.
        fanouts: Neighbours drawn at most for every node, without replacement, one number for each layer; the first
            layer is the one farthest from the targets. -1 takes all.
        batch_size: Training nodes of a batch; `None` takes all of them.
        seed: Seed of order and sampling.
    """

    def __init__(self, graph: Graph, fanouts: Sequence[int], *, batch_size: int | None = None, seed: int = 0) -> None:
        for fanout in fanouts:
            if fanout < 1 and fanout != -1:
                raise ValueError(f"a fan-out must be at least 1, or -1 for all neighbours, got {fanout}")
        super().__init__(graph, batch_size, seed=seed)
        self.fanouts = list(fanouts)
        # local index of every node of the batch being made, -1 elsewhere
        self._place = torch.full((graph.num_nodes,), -1, dtype=torch.long, device=graph.device)

    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:
        """Draws the neighbourhoods of some nodes."""
        nodes, adjs = targets, list[Adjacency]()
        self._place[targets] = torch.arange(len(targets), device=targets.device)
        for fanout in reversed(self.fanouts):
            drawn = sample_neighbours(self.graph.adj, nodes, fanout, generator)
            fresh = drawn.col[self._place[drawn.col] < 0].unique().long()
            self._place[fresh] = torch.arange(len(nodes), len(nodes) + len(fresh), device=nodes.device)
            nodes = torch.cat((nodes, fresh))
            adjs.append(Adjacency(drawn.rowptr, self._place[drawn.col].to(drawn.col.dtype), drawn.value, len(nodes)))
        self._place[nodes] = -1
        return Batch(
            x=select_rows(self.graph.x, nodes),
            y=self.graph.y[targets],
            weight=self._weight[targets],
            nodes=nodes,
            num_targets=len(targets),
            adjs=adjs[::-1],
        )


def sample_neighbours(adj: Adjacency, nodes: Tensor, fanout: int, generator: torch.Generator) -> Csr:
    """The mean over at most `fanout` neighbours of every node, drawn uniformly without replacement, [R, N].

    Every neighbour gets a random number, and the smallest ones of a row are kept: one sort for all rows.
    """
    block = adj.select(nodes)
    row = block.row_index()
    other = block.col != nodes[row]
    row, col = row[other], block.col[other]
    count = torch.bincount(row, minlength=len(nodes))
    if 0 <= fanout < int(count.max()):
        luck = torch.randint(1 << _BITS, (len(row),), generator=generator, device=row.device)
        order = ((row << _BITS) + luck).argsort()
        # the sort leaves every row at its place, so its members are numbered from its start
        start = count.cumsum(0) - count
        drawn = order[torch.arange(len(row), device=row.device) - start[row] < fanout]
        row, col, count = row[drawn], col[drawn], count.clamp(max=fanout)
    value = count.to(adj.value.dtype).reciprocal()[row]
    return Csr.from_sorted(row, col, value, (len(nodes), adj.num_cols))
