"""A GCN on parts of the graph that compensates what the parts leave out, forward and backward (LMC).

`V` nodes of a batch, `T` targets among them (the first rows), `C` outputs.
"""

from typing import Any, Unpack, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.model import weighted_loss
from lazygnn.models.gcn import GCN, GCNLayer
from lazygnn.models.layers import TargetBatchNorm, drop, dropout
from lazygnn.models.stack import LayerArguments
from lazygnn.ops import Adjacency, aggregate
from lazygnn.propagation import layer_matrices
from lazygnn.propagation.compensation import Compensation
from lazygnn.task import Task


class LMC(GCN):
    """A GCN whose batches also compute their halo, and its loss, as far as the batch knows its neighbors.

    Values and gradients of the halo are mixed with stored ones (`Compensation`). Weights learn from the targets alone,
    so every node counts once in an epoch. With exact histories and a `beta` of 0, the gradients of all batches add up
    to that of the whole graph. Shi et al., ICLR 2023, https://arxiv.org/abs/2302.00924

    Differences to the released code: histories always hold values before normalization and ReLU, as on its arxiv and
    Flickr, so that exact histories give exact gradients. Batch norm has the statistics of the targets. Stored gradients
    are not divided by the number of batches, since the weights of the loss are constants of the run.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of outputs.
        num_layers: Number of layers.
        compensation: Histories for batches with a halo, with one of features for each layer.
        shared: `norm`, `dropout` and `input_dropout`, as for `Stack`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int,
        compensation: Compensation | None = None,
        **shared: Unpack[LayerArguments],
    ) -> None:
        super().__init__(in_channels, hidden_channels, out_channels, num_layers=num_layers, **shared)
        self.compensation = Compensation() if compensation is None else compensation
        if len(self.compensation.features) not in (0, num_layers):
            raise ValueError(
                f"{num_layers} layers need {num_layers} histories of features or none, "
                f"got {len(self.compensation.features)}"
            )

    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""
        return self._outputs(batch)[: batch.num_targets]

    def loss(self, batch: Batch, task: Task) -> Tensor:
        """Returns the loss of the targets; its gradient is that of targets and halo."""
        outputs = self._outputs(batch)
        loss = weighted_loss(outputs[: batch.num_targets], batch.y, batch.weight, task)
        if batch.ring is None:
            return loss
        halo = weighted_loss(outputs[batch.num_targets :], batch.ring.y, batch.ring.weight, task)
        return loss + (halo - halo.detach())

    def _outputs(self, batch: Batch) -> Tensor:
        """Returns the outputs of all nodes of the batch, [V, C]."""
        size, adjs = batch.num_targets, layer_matrices(batch, len(self.layers))
        x: Any = drop(batch.x, self.input_dropout, self.training)
        for index, (layer, adj) in enumerate(zip(cast(list[GCNLayer], list(self.layers)), adjs, strict=True)):
            if index == 0:
                x = layer(x, adj)
                # no weight below receives a gradient from the halo
                x = x if len(x) == size else torch.cat((x[:size], x[size:].detach()))
            else:
                x = F.relu(_normalize(self.norms[index - 1], x, size))
                x = _convolve(layer, dropout(x, self.dropout, self.training), adj, size)
            x = self.compensation(index, x, batch)
        return cast(Tensor, x)


def _convolve(layer: GCNLayer, x: Tensor, adj: Adjacency, num_targets: int) -> Tensor:
    """Computes `A x W + b`; the weights receive gradients from the targets alone."""
    if num_targets == adj.num_rows:
        return cast(Tensor, layer(x, adj))
    # `A x` is needed by itself: the gradient of the weights has other rows than the gradient of `x`
    sums = aggregate(adj, x)
    targets = sums[:num_targets] @ layer.weight + layer.bias
    halo = sums[num_targets:] @ layer.weight.detach() + layer.bias.detach()
    return torch.cat((targets, halo))


def _normalize(norm: nn.Module, x: Tensor, num_targets: int) -> Tensor:
    """Normalizes with the statistics of the targets; the weights receive gradients from the targets alone."""
    if num_targets == len(x) or isinstance(norm, nn.Identity):
        return cast(Tensor, norm(x))
    # the second call must not count in the running statistics
    frozen = {name: value.detach() for name, value in norm.named_parameters()}
    frozen |= {name: value.clone() for name, value in norm.named_buffers()}
    arguments = (x, num_targets) if isinstance(norm, TargetBatchNorm) else (x,)
    return torch.cat((norm(x[:num_targets]), functional_call(norm, frozen, arguments)[num_targets:]))
