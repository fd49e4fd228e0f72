"""The graph convolutional network, over the whole graph or, with histories, over parts of it (GNNAutoScale).

`T` targets of a batch, `N` nodes of the graph, `C` outputs.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import History
from lazygnn.inference import by_columns, by_rows, evaluating
from lazygnn.model import Model
from lazygnn.models.layers import NormKind, drop, make_norm
from lazygnn.ops import Adjacency, Csr, aggregate, spmm
from lazygnn.propagation import LayerMemory, layer_matrices


class GCN(Model):
    """`num_layers` convolutions `A x W + b` with normalisation, ReLU and dropout between them.

    Kipf & Welling, ICLR 2017, https://arxiv.org/abs/1609.02907; with histories as in Fey et al., ICML 2021.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width in between.
        out_channels: Number of outputs.
        num_layers: Number of convolutions.
        norm: Normalisation after every layer but the last.
        dropout: Share of hidden units dropped in training.
        input_dropout: Share of input entries dropped in training; of sparse features, stored entries.
        histories: One after each layer but the last, for batches with a halo.
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
        histories: Sequence[History] = (),
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(GCNLayer(a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(make_norm(norm, hidden_channels) for _ in range(num_layers - 1))
        self.memory = LayerMemory(num_layers, histories)
        self.dropout = dropout
        self.input_dropout = input_dropout

    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the targets, [T, C]."""
        adjs = layer_matrices(batch, len(self.layers))
        x: Tensor = self.layers[0](drop(batch.x, self.input_dropout, self.training), adjs[0])
        for index, norm in enumerate(self.norms):
            x = self.memory(index, F.relu(norm(x)), batch)
            x = F.dropout(x, self.dropout, self.training)
            x = self.layers[index + 1](x, adjs[index + 1])
        return x

    def fill(self, batch: Batch) -> None:
        """Remembers every layer of the targets."""
        with torch.no_grad():
            self(batch)

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Outputs of every node, [N, C], where the graph lies, layer by layer."""
        adj = graph.adj.to(self.device)
        first, *others = cast(list[GCNLayer], list(self.layers))
        with evaluating(self):
            x = first.infer(graph.x, adj)
            for layer, norm in zip(others, self.norms, strict=True):
                x = by_rows(nn.Sequential(norm, nn.ReLU()), self.device, x)
                x = layer.infer(x, adj)
        return x

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """The weights layer by layer; a norm belongs to the layer before it."""
        groups = [list(layer.parameters()) for layer in self.layers]
        for group, norm in zip(groups, self.norms, strict=False):
            group.extend(norm.parameters())
        return groups


class GCNLayer(nn.Module):
    """`A x W + b` for dense or sparse `x`; the narrower product `x W` comes first."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        # Glorot, as the authors do
        bound = math.sqrt(6 / (in_channels + out_channels))
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        """The layer for the rows of `adj`."""
        return aggregate(adj, self.transform(x)) + self.bias

    def infer(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        """The layer for a whole graph whose rows may lie elsewhere than its weights."""
        x = by_columns(partial(spmm, adj), by_rows(self.transform, adj.device, x), adj.device)
        return x.add_(self.bias.to(x.device))

    def transform(self, x: Tensor | Csr) -> Tensor:
        """`x W`; sparse rows are never made dense."""
        return aggregate(x, self.weight) if isinstance(x, Csr) else x @ self.weight
