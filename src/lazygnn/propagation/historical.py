"""Propagation whose halo stands, at every step, at what that step gave when it was last computed (GNNAutoScale).

`F` rows of a batch the transform runs on, `T` targets, `C` channels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.history import History
from lazygnn.ops import aggregate
from lazygnn.propagation import Diffusion
from lazygnn.propagation.layerwise import LayerMemory, layer_matrices


class HistoricalPropagation(Diffusion):
    """Steps of APPNP with a history after each but the last; Fey et al., ICML 2021, https://arxiv.org/abs/2106.05609.

    The first step sees the halo's own features. Without histories, on the whole graph, this is APPNP.

    Args:
        alpha: Weight of `x_in` in every step, in (0, 1].
        num_layers: Number of steps, in training and in inference.
        histories: One after each step but the last, for batches with a halo.
    """

    def __init__(self, alpha: float, num_layers: int, histories: Sequence[History] = ()) -> None:
        super().__init__(alpha, eval_layers=num_layers, eval_tolerance=0.0)
        self.num_layers = num_layers
        self.memory = LayerMemory(num_layers, histories)

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """`x <- (1 - alpha) A x + alpha x_in` once for each matrix, [F, C] -> [T, C]."""
        x, source = x_in, x_in[: batch.num_targets]
        for index, adj in enumerate(layer_matrices(batch, self.num_layers)):
            x = x if index == 0 else self.memory(index - 1, x, batch)
            x = torch.lerp(aggregate(adj, x), source, self.alpha)
        return x

    def fill(self, x_in: Tensor, batch: Batch) -> None:
        """Remembers every step of the targets."""
        with torch.no_grad():
            self(x_in, batch)
