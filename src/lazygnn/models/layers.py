"""The MLP that transforms dense and sparse features, and the norms and dropout that all models share."""

from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn import functional as F

from lazygnn.errors import ConfigError, wrong_type
from lazygnn.models.parameters import glorot, parameters_by_layer
from lazygnn.ops import Csr, activations, aggregate, dropout_

NormKind = Literal["batch", "layer", "none"]


class MLP(nn.Module):
    """`mlp_layers` linear layers with normalization, ReLU and dropout between them; `f` of Eq. (2).

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Width of the output.
        mlp_layers: Number of linear layers.
        norm: Normalization after every layer but the last; `batch` takes its statistics from the targets only.
        dropout: Fraction of hidden units dropped in training.
        input_dropout: Fraction of input entries dropped in training; for sparse features, of the stored entries.
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
        # batch norm subtracts the mean, and a bias with it
        biases = [*[norm != "batch"] * (mlp_layers - 1), True]
        layers = zip(pairwise(sizes), biases, strict=True)
        self.linears = nn.ModuleList(Linear(a, b, bias=bias) for (a, b), bias in layers)
        self.norms = nn.ModuleList(make_norm(norm, hidden_channels) for _ in range(mlp_layers - 1))
        self.dropout = dropout
        self.input_dropout = input_dropout

    def forward(self, x: Tensor | Csr, num_targets: int | None = None) -> Tensor:
        """Transforms every row; batch statistics are those of the first `num_targets` rows, all by default."""
        out: Tensor = self.linears[-1](self._hidden(x, num_targets))
        return out

    def hidden(self, x: Tensor | Csr) -> Tensor:
        """Returns the input of the last layer for every row."""
        if len(self.linears) == 1:
            raise ConfigError("`mlp_layers` is 1, so there is no hidden layer to return; train with 2 or more")
        h = self._hidden(x, None)
        assert isinstance(h, Tensor)
        return h

    def _hidden(self, x: Tensor | Csr, num_targets: int | None) -> Tensor | Csr:
        h = drop(x, self.input_dropout, self.training)
        for linear, norm in zip(self.linears, self.norms, strict=False):
            h = linear(h)
            if isinstance(norm, TargetBatchNorm):
                h = norm.relu_dropout(h, num_targets, self.dropout, self.training)
            else:
                h = relu_dropout(norm(h), self.dropout, self.training)
        return h

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer, from input to output; a norm belongs to the layer before it."""
        return parameters_by_layer(self.linears, self.norms)


class Linear(nn.Module):
    """`x W + b` for dense or sparse `x`; the weight has shape [in, out], as a sparse product needs it."""

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = glorot(in_channels, out_channels)
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_channels))
        else:
            self.register_parameter("bias", None)

    def forward(self, x: Tensor | Csr) -> Tensor:
        """Returns `x W + b`; sparse rows are never made dense."""
        check_columns(x, len(self.weight))
        if isinstance(x, Csr):
            out = aggregate(x, autocasted(self.weight))
            return out if self.bias is None else out + autocasted(self.bias)
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class TargetBatchNorm(nn.BatchNorm1d):
    """Batch norm with the statistics of the targets of a batch, without its halo."""

    def forward(self, x: Tensor, num_targets: int | None = None) -> Tensor:
        """Normalizes all rows with the statistics of the first `num_targets`."""
        if self.training and (len(x) if num_targets is None else num_targets) < 2:
            raise ConfigError(
                "a batch has one node, which has no variance; choose larger batches, or no batch norm: "
                "set `norm=layer`, or leave `convolutions` out of `beside`"
            )
        if not self.training or num_targets is None or num_targets == len(x):
            return super().forward(x)
        targets = super().forward(x[:num_targets])
        # statistics have the dtype of the weights, which differs from that of `x` under autocast
        seen = x[:num_targets].detach().to(self.weight.dtype)
        variance, mean = torch.var_mean(seen, dim=0, correction=0)
        halo = F.batch_norm(x[num_targets:], mean, variance, self.weight, self.bias, training=False, eps=self.eps)
        return torch.cat((targets, halo))

    def relu_dropout(self, x: Tensor, num_targets: int | None, p: float, training: bool) -> Tensor:
        """Returns `dropout(relu(self(x)))`, as one kernel where there is one."""
        kernels = activations(x) if training and 0 <= p < 1 and self._can_fuse(x, num_targets) else None
        if kernels is None:
            return relu_dropout(self(x, num_targets), p, training)
        out: Tensor = kernels.batch_norm_relu_dropout(x, self, p)
        return out

    def _can_fuse(self, x: Tensor, num_targets: int | None) -> bool:
        """Returns whether the kernel applies: statistics over all rows, more than one of them, default options."""
        # `torch.compile` fuses on its own
        if torch.compiler.is_compiling():
            return False
        usual = self.affine and self.track_running_stats and self.momentum is not None
        fits = usual and x.shape[1:] == self.weight.shape and self.weight.dtype == torch.float32
        return fits and self.training and len(x) > 1 and num_targets in (None, len(x))


class TypedLayerNorm(nn.LayerNorm):
    """Layer norm with an output of the input's dtype, where autocast would return float32."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalizes every row, with one kernel where there is one."""
        kernels = activations(x)
        if kernels is None or x.shape[1:] != self.weight.shape or x.shape[1] > kernels.MOST_COLUMNS:
            return super().forward(x).to(x.dtype)
        out: Tensor = kernels.layer_norm(x, self)
        return out


def relu_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Returns `dropout(relu(x))` and saves only this output for backward, which the next layer saves anyway."""
    # `torch.compile` fuses on its own
    if not training or not 0 < p < 1 or torch.compiler.is_compiling():
        return F.dropout(F.relu(x), p, training)
    kernels = activations(x)
    function = _ReluDropout.apply if kernels is None else kernels.relu_dropout
    out: Tensor = function(x, p)
    return out


def gelu_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Returns `dropout(gelu(x))`, as one kernel where there is one."""
    kernels = activations(x) if training and 0 <= p < 1 else None
    if kernels is None:
        return dropout(F.gelu(x), p, training)
    out: Tensor = kernels.gelu_dropout(x, p)
    return out


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Applies dropout with the fast random numbers of `dropout_` on a CPU."""
    if not training or not 0 < p < 1 or x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p, training)
    mask, _ = dropout_(torch.ones_like(x), p)
    return x * mask


class _ReluDropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        out, ctx.scale = dropout_(F.relu(x), p)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (out,) = ctx.saved_tensors
        # the output is positive exactly where the input was positive and kept
        passed: Tensor = torch.ops.aten.threshold_backward(grad, out, 0)
        return passed.mul_(ctx.scale), None


def autocasted(weight: Tensor) -> Tensor:
    """Casts a weight as autocast does for dense products; autocast ignores our sparse products."""
    kind = weight.device.type
    return weight.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else weight


def drop(x: Tensor | Csr, p: float, training: bool) -> Tensor | Csr:
    """Applies dropout to dense entries, or to the stored entries of a sparse matrix."""
    if isinstance(x, Csr):
        return x.with_value(dropout(x.value, p, training)) if training and p > 0 else x
    return dropout(x, p, training)


def check_columns(x: Tensor | Csr, channels: int) -> None:
    """Refuses an input of another width than a layer was built for."""
    if not isinstance(x, Tensor | Csr):
        raise ConfigError(wrong_type("x", x, "give a tensor"))
    if x.shape[-1] != channels:
        raise ConfigError(
            f"the input has {x.shape[-1]} columns, and the layer was built for {channels}; give the features that the "
            f"model was built for, or build it with {x.shape[-1]} channels"
        )


def make_norm(norm: NormKind, channels: int) -> nn.Module:
    """Makes a normalization by name."""
    if norm not in get_args(NormKind):
        raise ConfigError(f"`norm` is {norm!r}; choose one of: {', '.join(get_args(NormKind))}")
    if norm == "batch":
        return TargetBatchNorm(channels)
    return TypedLayerNorm(channels) if norm == "layer" else nn.Identity()
