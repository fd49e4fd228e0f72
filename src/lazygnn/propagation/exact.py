"""Exact propagation: every pass starts from its input."""

from torch import Tensor

from lazygnn.batch import Batch, check_batch
from lazygnn.errors import ConfigError
from lazygnn.history import NoHistory
from lazygnn.propagation.base import Diffusion, exact_views
from lazygnn.propagation.passes import Rule, propagate
from lazygnn.propagation.response import Response
from lazygnn.propagation.views import near_and_far

_NEEDS_ALL = "exact propagation needs the whole graph in a batch; build it with `Batch.full`"


class ExactPropagation(Diffusion):
    """Starts every pass from `x_in` (APPNP, Eqs. 2-4); https://arxiv.org/abs/1810.05997.

    With one symmetric matrix the gradient is the same polynomial in `A`, so memory does not grow with the steps.

    Args:
        alpha: Weight of `x_in` in every step, in (0, 1].
        num_layers: Number of steps, in training and in inference.
        sign: 1 for the low-pass of the paper; -1 for the high-pass, `x <- -(1 - alpha) A x + alpha x_in`.
    """

    def __init__(self, alpha: float, num_layers: int, *, sign: int = 1) -> None:
        super().__init__(alpha, eval_layers=num_layers, eval_tolerance=0.0, sign=sign)

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """Propagates over a full batch."""
        return propagate(x_in, batch, self._rule(batch))

    def views(self, x_in: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns `A x_in` and the propagated rows of a full batch, [N, C] each."""
        if not self.training:
            return exact_views(self, x_in, batch)
        check_batch(batch)
        if not batch.whole:
            raise ConfigError(_NEEDS_ALL)
        return near_and_far(x_in, batch, self._rule(batch))

    def _rule(self, batch: Batch) -> Rule:
        if any(adj is not batch.adjs[0] for adj in batch.adjs):
            raise ConfigError(_NEEDS_ALL)
        response = Response.plain(len(batch.adjs))
        return Rule(self.alpha, features=NoHistory(), gradients=NoHistory(), response=response, sign=self.sign)
