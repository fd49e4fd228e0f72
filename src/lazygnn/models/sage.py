"""GraphSAGE with the mean aggregator, for sampled neighbourhoods in training and whole ones in inference.

`T` targets of a batch, `R` rows a layer computes, `N` nodes of the graph, `C` outputs.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.inference import evaluating
from lazygnn.model import Model
from lazygnn.models.layers import Linear, NormKind, drop, make_norm, relu_dropout
from lazygnn.ops import Adjacency, Csr, aggregate
from lazygnn.propagation import layer_matrices


class SAGE(Model):
    """`num_layers` layers with normalisation, ReLU and dropout between them; https://arxiv.org/abs/1706.02216.

    Hamilton et al., NeurIPS 2017, Algorithm 1 without the scaling to unit length of line 7, as its later users do.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width in between.
        out_channels: Number of outputs.
        num_layers: Number of layers.
        norm: Normalisation after every layer but the last.
        dropout: Share of hidden units dropped in training.
        input_dropout: Share of input entries dropped in training; of sparse features, stored entries.
    """

    replayable = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int,
        norm: NormKind = "none",
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(SAGELayer(a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(make_norm(norm, hidden_channels) for _ in range(num_layers - 1))
        self.dropout = dropout
        self.input_dropout = input_dropout

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the targets, [T, C]; `batch.adjs` hold means over neighbours, as `NeighborLoader` makes them."""
        return self._outputs(batch.x, layer_matrices(batch, len(self.layers)))

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Outputs of every node, [N, C], from all neighbours, layer by layer."""
        mean = mean_of_neighbours(graph.adj)
        with evaluating(self):
            return self._outputs(graph.x, [mean] * len(self.layers))

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """The weights layer by layer; a norm belongs to the layer before it."""
        groups = [list(layer.parameters()) for layer in self.layers]
        for group, norm in zip(groups, self.norms, strict=False):
            group.extend(norm.parameters())
        return groups

    def _outputs(self, x: Tensor | Csr, adjs: Sequence[Adjacency]) -> Tensor:
        h: Tensor = self.layers[0](drop(x, self.input_dropout, self.training), adjs[0])
        for layer, norm, adj in zip(self.layers[1:], self.norms, adjs[1:], strict=True):
            h = relu_dropout(norm(h), self.dropout, self.training)
            h = layer(h, adj)
        return h


class SAGELayer(nn.Module):
    """`x W + b + mean(x of the neighbours) V`, which is one weight times the two side by side."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.own = Linear(in_channels, out_channels)
        bound = math.sqrt(6 / (in_channels + out_channels))
        self.neighbours = nn.Parameter(torch.empty(in_channels, out_channels).uniform_(-bound, bound))

    def forward(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        """The layer for the rows of `adj`, which are the first rows of `x`."""
        own: Tensor = self.own(x.rows(adj.num_rows) if isinstance(x, Csr) else x[: adj.num_rows])
        if isinstance(x, Csr):
            # sparse rows are never made dense, so the mean is taken of what the weight has narrowed
            return own + aggregate(adj, aggregate(x, self.neighbours))
        return own + aggregate(adj, x) @ self.neighbours


def mean_of_neighbours(adj: Adjacency) -> Adjacency:
    """The matrix that takes the mean over the neighbours of every node, the node itself left out, [N, N].

    Edges count alike, whatever their weight; a node without neighbours has a row of zeros.
    """
    row = adj.row_index()
    others = (adj.col != row).to(adj.value.dtype)
    count = torch.zeros(adj.num_rows, dtype=others.dtype, device=adj.device).index_add_(0, row, others)
    return Adjacency(adj.rowptr, adj.col, others / count.clamp(min=1)[row], adj.num_cols)
