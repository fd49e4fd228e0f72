"""Histories whose halo follows estimates from the batch (GraphFM)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.history import History
from lazygnn.history.warmstart import check_beta
from lazygnn.propagation.historical import LayerMemory


class MomentumMemory(LayerMemory):
    """A `LayerMemory` that also updates the halo: `(1 - momentum) stored + momentum estimate` is stored and read.

    Without momentum it is a `LayerMemory`. Yu et al., ICML 2022, https://arxiv.org/abs/2206.07161

    Args:
        num_layers: Layers of the model.
        histories: As for `LayerMemory`.
        momentum: Weight of the estimate, in [0, 1].
    """

    def __init__(self, num_layers: int, histories: Sequence[History] = (), *, momentum: float = 0.0) -> None:
        super().__init__(num_layers, histories)
        check_beta(momentum, "momentum")
        self.momentum = momentum

    def forward(self, index: int, x: Tensor, batch: Batch, estimate: Tensor | None = None) -> Tensor:
        """Returns the input of the next layer, [T, C] -> [V, C]; `estimate` has a row for each node of the halo."""
        if not (self.training and self.histories) or estimate is None:
            return super().forward(index, x, batch)
        history = self.histories[index]
        complete = history.start(batch.nodes, batch.num_targets, x).x
        stored = complete[batch.num_targets :].detach()
        halo = torch.lerp(stored, estimate.detach().to(stored.dtype), self.momentum)
        complete = torch.cat((complete[: batch.num_targets], halo))
        history.push(batch.nodes, complete.detach(), complete.detach())
        return complete
