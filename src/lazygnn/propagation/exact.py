"""Exact propagation: every pass starts from its input."""

from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.history import NoHistory
from lazygnn.propagation.base import Diffusion
from lazygnn.propagation.passes import Rule, propagate
from lazygnn.propagation.response import Response


class ExactPropagation(Diffusion):
    """Starts every pass from `x_in` (APPNP, Eqs. 2-4); https://arxiv.org/abs/1810.05997.

    With one symmetric matrix the gradient is the same polynomial in `A`, so memory does not grow with the steps.

    Args:
        alpha: Weight of `x_in` in every step, in (0, 1].
        num_layers: Number of steps, in training and in inference.
    """

    def __init__(self, alpha: float, num_layers: int) -> None:
        super().__init__(alpha, eval_layers=num_layers, eval_tolerance=0.0)

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """Propagates over a full batch."""
        if any(adj is not batch.adjs[0] for adj in batch.adjs):
            raise ValueError("exact propagation needs the whole graph in a batch; build it with `Batch.full`")
        response = Response.plain(len(batch.adjs))
        return propagate(x_in, batch, Rule(self.alpha, features=NoHistory(), gradients=NoHistory(), response=response))
