"""GraphSAGE with the mean aggregator: sampled neighbors in training, all neighbors in inference."""

from dataclasses import replace

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.inference import by_rows, multiply
from lazygnn.models.layers import Linear, relu_dropout
from lazygnn.models.parameters import glorot, load_renamed
from lazygnn.models.stack import Layer, Stack
from lazygnn.ops import Adjacency, Csr, aggregate


class SAGELayer(Layer):
    """`x W + b + mean(x of the neighbors) V`, which is one weight applied to both, concatenated."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.own = Linear(in_channels, out_channels)
        self.neighbors = glorot(in_channels, out_channels)
        load_renamed(self, {"neighbours": "neighbors"})

    def forward(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        """Computes the rows of `adj`, which are the first rows of `x`."""
        own: Tensor = self.own(x.rows(adj.num_rows) if isinstance(x, Csr) else x[: adj.num_rows])
        if isinstance(x, Csr):
            # sparse rows are never made dense, so the weight comes before the mean
            return own + aggregate(adj, aggregate(x, self.neighbors))
        return own + aggregate(adj, x) @ self.neighbors

    def infer(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        """Computes every row in bounded memory."""
        if isinstance(x, Csr):
            narrow = by_rows(lambda rows: aggregate(rows, self.neighbors), adj.device, x)
            return by_rows(self.own, adj.device, x).add_(multiply(adj, narrow))
        return by_rows(lambda rows, means: self.own(rows) + means @ self.neighbors, adj.device, x, multiply(adj, x))


class SAGE(Stack):
    """`num_layers` layers with normalization, ReLU and dropout between them; see `Stack`.

    Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216, Algorithm 1 without the scaling to unit length of
    line 7, which later implementations omit too. The matrices of a batch hold means over neighbors, as `NeighborLoader`
    makes them.
    """

    layer = SAGELayer

    def activate(self, index: int, x: Tensor, batch: Batch) -> Tensor:
        """Fuses ReLU and dropout where nothing is stored between them."""
        if self.memory.histories:
            return super().activate(index, x, batch)
        return relu_dropout(self.norms[index](x), self.dropout, self.training)

    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C], from the means over all neighbors, layer by layer."""
        return super().infer(replace(graph, adj=mean_of_neighbors(graph.adj)))

    def embed(self, graph: Graph) -> Tensor:
        """Returns the input of the last layer for every node, [N, H], from the means over all neighbors."""
        return super().embed(replace(graph, adj=mean_of_neighbors(graph.adj)))


def mean_of_neighbors(adj: Adjacency) -> Adjacency:
    """Returns the matrix that averages over the neighbors of every node, without the node itself, [N, N].

    All edges count the same, whatever their weight. A node without neighbors has a row of zeros.
    """
    row = adj.row_index()
    others = (adj.col != row).to(adj.value.dtype)
    count = torch.zeros(adj.num_rows, dtype=others.dtype, device=adj.device).index_add_(0, row, others)
    return Adjacency(adj.rowptr, adj.col, others / count.clamp(min=1)[row], adj.num_cols)
