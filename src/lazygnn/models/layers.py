"""The transform of decoupled models: an MLP that takes dense and sparse features."""

import math
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from lazygnn.ops import Csr, activations, aggregate, dropout_

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
        # a batch norm takes away whatever is added in front of it
        biases = [*[norm != "batch"] * (mlp_layers - 1), True]
        layers = zip(pairwise(sizes), biases, strict=True)
        self.linears = nn.ModuleList(Linear(a, b, bias=bias) for (a, b), bias in layers)
        self.norms = nn.ModuleList(make_norm(norm, hidden_channels) for _ in range(mlp_layers - 1))
        self.dropout = dropout
        self.input_dropout = input_dropout

    def forward(self, x: Tensor | Csr, num_targets: int | None = None) -> Tensor:
        """Transforms every row; batch statistics come from the first `num_targets` rows, all by default."""
        h = drop(x, self.input_dropout, self.training)
        for linear, norm in zip(self.linears, self.norms, strict=False):
            h = linear(h)
            if isinstance(norm, TargetBatchNorm):
                h = norm.relu_dropout(h, num_targets, self.dropout, self.training)
            else:
                h = relu_dropout(norm(h), self.dropout, self.training)
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

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = True) -> None:
        super().__init__()
        # Glorot, as in APPNP and GCN; the bias starts at zero
        bound = math.sqrt(6 / (in_channels + out_channels))
        self.weight = nn.Parameter(torch.empty(in_channels, out_channels).uniform_(-bound, bound))
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_channels))
        else:
            self.register_parameter("bias", None)

    def forward(self, x: Tensor | Csr) -> Tensor:
        """Multiplies; sparse rows are never made dense."""
        if isinstance(x, Csr):
            out = aggregate(x, autocasted(self.weight))
            return out if self.bias is None else out + autocasted(self.bias)
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class TargetBatchNorm(nn.BatchNorm1d):
    """Batch norm whose statistics see the targets of a batch and not its halo."""

    def forward(self, x: Tensor, num_targets: int | None = None) -> Tensor:
        """Normalises all rows with the statistics of the first `num_targets`."""
        if not self.training or num_targets is None or num_targets == len(x):
            return super().forward(x)
        targets = super().forward(x[:num_targets])
        # statistics have the type of the weights, which under autocast is not that of `x`
        seen = x[:num_targets].detach().to(self.weight.dtype)
        variance, mean = torch.var_mean(seen, dim=0, correction=0)
        halo = F.batch_norm(x[num_targets:], mean, variance, self.weight, self.bias, training=False, eps=self.eps)
        return torch.cat((targets, halo))

    def relu_dropout(self, x: Tensor, num_targets: int | None, p: float, training: bool) -> Tensor:
        """`dropout(relu(...))` of the same, in one where there are kernels for it."""
        kernels = activations(x) if training and 0 <= p < 1 and self._can_fuse(x, num_targets) else None
        if kernels is None:
            return relu_dropout(self(x, num_targets), p, training)
        out: Tensor = kernels.batch_norm_relu_dropout(x, self, p)
        return out

    def _can_fuse(self, x: Tensor, num_targets: int | None) -> bool:
        """Whether all rows count, and there is nothing to refuse: of one row there is no variance."""
        # a compiler fuses by itself
        if torch.compiler.is_compiling():
            return False
        usual = self.affine and self.track_running_stats and self.momentum is not None
        fits = usual and x.shape[1:] == self.weight.shape and self.weight.dtype == torch.float32
        return fits and self.training and len(x) > 1 and num_targets in (None, len(x))


class TypedLayerNorm(nn.LayerNorm):
    """Layer norm whose result has the type of its input, where autocast would hand out float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalises every row."""
        return super().forward(x).to(x.dtype)


def relu_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """`dropout(relu(x))`, which keeps nothing for the backward pass but its result, as the next layer does anyway."""
    # a compiler sees to that itself
    if not training or not 0 < p < 1 or torch.compiler.is_compiling():
        return F.dropout(F.relu(x), p, training)
    kernels = activations(x)
    function = _ReluDropout.apply if kernels is None else kernels.relu_dropout
    out: Tensor = function(x, p)
    return out


class _ReluDropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        out, ctx.scale = dropout_(F.relu(x), p)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        # what was kept and positive is positive still, all else is zero
        passed: Tensor = torch.ops.aten.threshold_backward(grad, out, 0)
        return passed.mul_(ctx.scale), None


def autocasted(weight: Tensor) -> Tensor:
    """The weight as autocast would hand it to a dense product; a product of our own it does not know."""
    kind = weight.device.type
    return weight.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else weight


def drop(x: Tensor | Csr, p: float, training: bool) -> Tensor | Csr:
    """Dropout of dense entries, or of the stored entries of a sparse matrix."""
    if isinstance(x, Csr):
        return x.with_value(F.dropout(x.value, p, training)) if training and p > 0 else x
    return F.dropout(x, p, training)


def make_norm(norm: NormKind, channels: int) -> nn.Module:
    """The normalisation of that name."""
    if norm == "batch":
        return TargetBatchNorm(channels)
    return TypedLayerNorm(channels) if norm == "layer" else nn.Identity()
