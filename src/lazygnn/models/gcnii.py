"""GCNII: deep convolutions with a residual connection to their input, over the whole graph or parts of it.

`T` targets of a batch, `N` nodes of the graph, `H` hidden channels, `C` outputs.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import History
from lazygnn.inference import by_rows, evaluating, multiply
from lazygnn.model import Model
from lazygnn.models.layers import Linear, NormKind, drop, dropout, make_norm
from lazygnn.models.parameters import parameters_by_layer
from lazygnn.ops import Adjacency, Csr, aggregate
from lazygnn.propagation import LayerMemory, layer_matrices


class GCNII(Model):
    """`x <- relu(((1 - alpha) A x + alpha x_0) ((1 - beta_l) I + beta_l W_l))`, `beta_l = log(theta / l + 1)`.

    A linear layer with ReLU computes `x_0`, another linear layer the outputs. Chen et al., ICML 2020,
    https://arxiv.org/abs/2007.02133; with histories as in Fey et al., ICML 2021.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the convolutions.
        out_channels: Number of outputs.
        num_layers: Number of convolutions.
        alpha: Weight of `x_0` in every layer.
        theta: How far a layer may be from the identity; `lamda` in the authors' code.
        shared_weights: Whether `A x` and `x_0` share one `W_l`; with two, the model is GCNII*.
        norm: Normalization after every convolution.
        dropout: Fraction of hidden units dropped in training.
        input_dropout: Fraction of input entries dropped in training; for sparse features, of the stored entries.
        histories: One for each convolution but the last, for batches with a halo.
    """

    replayable = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int,
        alpha: float = 0.1,
        theta: float = 0.5,
        shared_weights: bool = True,
        norm: NormKind = "none",
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        histories: Sequence[History] = (),
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
        betas = [math.log(theta / layer + 1) for layer in range(1, num_layers + 1)]
        self.first = Linear(in_channels, hidden_channels)
        self.layers = nn.ModuleList(
            GCN2Layer(hidden_channels, alpha=alpha, beta=beta, shared_weights=shared_weights) for beta in betas
        )
        self.norms = nn.ModuleList(make_norm(norm, hidden_channels) for _ in betas)
        self.last = Linear(hidden_channels, out_channels)
        self.memory = LayerMemory(num_layers, histories)
        self.dropout = dropout
        self.input_dropout = input_dropout

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        adjs = layer_matrices(batch, len(self.layers))
        x = x_0 = self._first(drop(batch.x, self.input_dropout, self.training))
        for index, (layer, norm, adj) in enumerate(zip(self.layers, self.norms, adjs, strict=True)):
            x = x if index == 0 else self.memory(index - 1, x, batch)
            x = dropout(x, self.dropout, self.training)
            x = F.relu(norm(layer(x, x_0, adj)))
        out: Tensor = self.last(dropout(x, self.dropout, self.training))
        return out

    def fill(self, batch: Batch) -> None:
        """Stores the output of every convolution but the last for the targets."""
        with torch.no_grad():
            self(batch)

    @torch.no_grad()
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C], on the device of the graph, layer by layer."""
        with evaluating(self):
            return by_rows(self.last, self.device, self.embed(graph))

    @torch.no_grad()
    def embed(self, graph: Graph) -> Tensor:
        """Returns the input of the last layer for every node, [N, H], on the device of the graph."""
        adj = graph.adj.to(self.device)
        with evaluating(self):
            x = x_0 = by_rows(self._first, self.device, graph.x)
            for layer, norm in zip(cast(list[GCN2Layer], list(self.layers)), self.norms, strict=True):
                x = multiply(adj, x)
                x = by_rows(partial(_finish, layer, norm), self.device, x, x_0)
            return x

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights of the convolutions, then of the two linear layers, which have a decay of their own."""
        linears = parameters_by_layer([self.first, self.last], [])
        return parameters_by_layer(self.layers, self.norms) + linears

    def _first(self, x: Tensor | Csr) -> Tensor:
        return F.relu(self.first(x))


class GCN2Layer(nn.Module):
    """`((1 - alpha) A x + alpha x_0) ((1 - beta) I + beta W)`, or with a second weight for `x_0`."""

    def __init__(self, channels: int, *, alpha: float, beta: float, shared_weights: bool = True) -> None:
        super().__init__()
        self.alpha = alpha
        self.beta = beta
        self.weight = _uniform(channels)  # [H, H]
        self.initial_weight = None if shared_weights else _uniform(channels)  # [H, H]

    def forward(self, x: Tensor, x_0: Tensor, adj: Adjacency) -> Tensor:
        """Computes the rows of `adj`."""
        return self.combine(aggregate(adj, x), x_0[: adj.num_rows])

    def combine(self, aggregated: Tensor, x_0: Tensor) -> Tensor:
        """Computes the layer from `A x`."""
        if self.initial_weight is None:
            return self._near_identity(torch.lerp(aggregated, x_0, self.alpha), self.weight)
        near = self._near_identity((1 - self.alpha) * aggregated, self.weight)
        return near + self._near_identity(self.alpha * x_0, self.initial_weight)

    def _near_identity(self, x: Tensor, weight: Tensor) -> Tensor:
        return torch.addmm(x, x, weight, beta=1 - self.beta, alpha=self.beta)


def _finish(layer: GCN2Layer, norm: nn.Module, aggregated: Tensor, x_0: Tensor) -> Tensor:
    return F.relu(norm(layer.combine(aggregated, x_0)))


def _uniform(channels: int) -> nn.Parameter:
    # the bound of the authors' code
    bound = 1 / math.sqrt(channels)
    return nn.Parameter(torch.empty(channels, channels).uniform_(-bound, bound))
