"""MVS-GNN: a GCN with histories that measures the gradients of its last layer, node by node.

`T` targets of a batch, `H` hidden channels, `C` outputs.
"""

from collections.abc import Sequence
from typing import Unpack, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.history import History, StoredHistory
from lazygnn.inference import evaluating
from lazygnn.models.gcn import GCN, GCNLayer
from lazygnn.models.stack import LayerArguments
from lazygnn.ops import aggregate
from lazygnn.propagation import layer_matrices
from lazygnn.task import Task


class MVSGCN(GCN):
    """A GCN on targets with a halo of stored activations, and the gradient norms that targets are drawn by.

    Cong et al., KDD 2020, https://arxiv.org/abs/2006.13866. For a target with the input `a` of the last layer, summed
    over neighbors, and the gradient `b` of its loss in its outputs, the norm is that of the gradient in the weights and
    the bias of the last layer, `|b| sqrt(|a|^2 + 1)`.

    Args:
        in_channels: Width of the features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of outputs.
        num_layers: Number of layers, at least 2.
        histories: One for each layer but the last, for batches with a halo.
        gradient_norms: A history of one channel that stores the norms; only training needs one.
        shared: `norm`, `dropout` and `input_dropout`, as for `Stack`.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int,
        histories: Sequence[History] = (),
        gradient_norms: StoredHistory | None = None,
        **shared: Unpack[LayerArguments],
    ) -> None:
        if num_layers < 2:
            raise ValueError(f"`num_layers` must be at least 2, got {num_layers}")
        super().__init__(
            in_channels, hidden_channels, out_channels, num_layers=num_layers, histories=histories, **shared
        )
        self.gradient_norms = gradient_norms

    @torch.no_grad()
    def measure(self, batch: Batch, task: Task) -> None:
        """Stores the gradient norms of the targets, and the activations of all nodes on the way, without dropout.

        Args:
            batch: One with exact neighborhoods: each layer computes the rows that the next one needs.
            task: Defines the loss.
        """
        if self.gradient_norms is None:
            raise ValueError("a model without `gradient_norms` cannot measure; build it with a history of one channel")
        *hidden, last = cast(list[GCNLayer], list(self.layers))
        *adjs, top = layer_matrices(batch, len(self.layers))
        x = cast(Tensor, batch.x)
        with evaluating(self):
            for index, (layer, adj) in enumerate(zip(hidden, adjs, strict=True)):
                x = F.relu(self.norms[index](layer(x, adj)))
                if self.memory.histories:
                    self.memory.histories[index].push(batch.nodes[: len(x)], x, x)
        total = aggregate(top, x)
        found = gradient_norms(total, last.transform(total) + last.bias, batch.y, task).unsqueeze(1)
        self.gradient_norms.push(batch.targets, found, found)

    def stored_norms(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the norms of some nodes at their last measurement, and whether they were ever measured."""
        assert self.gradient_norms is not None
        norms = self.gradient_norms
        return norms.values.read(nodes)[:, 0], norms.pushed[nodes.to(norms.pushed.device)] >= 0


def gradient_norms(x: Tensor, outputs: Tensor, y: Tensor, task: Task) -> Tensor:
    """Returns the norm of each row's gradient in the weights and the bias of `outputs = x W + b`, [T].

    Args:
        x: Inputs of the linear layer, [T, H].
        outputs: Its outputs, [T, C].
        y: Targets of the task.
        task: Defines the loss of a row.
    """
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        (grad,) = torch.autograd.grad(task.loss(leaf, y).sum(), leaf)
    norms: Tensor = grad.norm(dim=1) * (x.square().sum(dim=1) + 1).sqrt()
    return norms
