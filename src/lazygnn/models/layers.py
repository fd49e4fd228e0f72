"""The transform of decoupled models: an MLP that takes dense and sparse features."""

import math
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazygnn.ops import Csr, aggregate

NormKind = Literal["batch", "layer", "none"]


class MLP(nn.Module):
    """`mlp_layers` linear layers with normalisation, ReLU and dropout between them; `f` of Eq. (2).

    Args:
        in_channels: Width of the features.
        hidden_channels: Width in between.
        out_channels: Width of the result.
        mlp_layers: Number of linear layers.
        norm: Normalisation after every layer but the last; `batch` looks at the targets of a batch alone.
        dropout: Share of hidden units dropped in training.
        input_dropout: Share of input entries dropped in training; of sparse features, stored entries.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        mlp_layers: int,
        norm: NormKind = "none",
        dropout: float = 0.5,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if mlp_layers < 1:
            raise ValueError(f"`mlp_layers` must be at least 1, got {mlp_layers}")
        sizes = [in_channels, *[hidden_channels] * (mlp_layers - 1), out_channels]
        self.linears = nn.ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(make_norm(norm, hidden_channels) for _ in range(mlp_layers - 1))
        self.dropout = dropout
        self.input_dropout = input_dropout

    def forward(self, x: Tensor | Csr, num_targets: int | None = None) -> Tensor:
        """Transforms every row; batch statistics come from the first `num_targets` rows, all by default."""
        h = drop(x, self.input_dropout, self.training)
        for linear, norm in zip(self.linears, self.norms, strict=False):
            h = linear(h)
            h = norm(h, num_targets) if isinstance(norm, TargetBatchNorm) else norm(h)
            h = F.dropout(F.relu(h), self.dropout, self.training)
        out: Tensor = self.linears[-1](h)
        return out

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """The weights layer by layer, from input to output; a norm belongs to the layer before it."""
        groups = [list(linear.parameters()) for linear in self.linears]
        for group, norm in zip(groups, self.norms, strict=False):
            group.extend(norm.parameters())
        return groups


class Linear(nn.Module):
    """`x W + b` for dense or sparse `x`; the weight is kept as [in, out], the form a sparse product needs."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        # Glorot, as in APPNP and GCN; the bias starts at zero
        bound = math.sqrt(6 / (in_channels + out_channels))
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor | Csr) -> Tensor:
        """Multiplies; sparse rows are never made dense."""
        if isinstance(x, Csr):
            return aggregate(x, self.weight) + self.bias
        return torch.addmm(self.bias, x, self.weight)


class TargetBatchNorm(nn.BatchNorm1d):
    """Batch norm whose statistics see the targets of a batch and not its halo."""

    def forward(self, x: Tensor, num_targets: int | None = None) -> Tensor:
        """Normalises all rows with the statistics of the first `num_targets`."""
        if not self.training or num_targets is None or num_targets == len(x):
            return super().forward(x)
        targets = super().forward(x[:num_targets])
        variance, mean = torch.var_mean(x[:num_targets].detach(), dim=0, correction=0)
        halo = F.batch_norm(x[num_targets:], mean, variance, self.weight, self.bias, training=False, eps=self.eps)
        return torch.cat((targets, halo))


def drop(x: Tensor | Csr, p: float, training: bool) -> Tensor | Csr:
    """Dropout of dense entries, or of the stored entries of a sparse matrix."""
    if isinstance(x, Csr):
        return x.with_value(F.dropout(x.value, p, training)) if training and p > 0 else x
    return F.dropout(x, p, training)


def make_norm(norm: NormKind, channels: int) -> nn.Module:
    """The normalisation of that name."""
    if norm == "batch":
        return TargetBatchNorm(channels)
    return nn.LayerNorm(channels) if norm == "layer" else nn.Identity()
