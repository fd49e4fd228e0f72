"""Compensation of what a part of the graph leaves out, forward and backward (LMC).

`V` nodes of a batch, `T` targets among them (the first rows), `C` channels.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn.batch import Batch
from lazygnn.history import History
from lazygnn.history.warmstart import check_beta
from lazygnn.propagation.historical import add_halo

Score = Literal["constant", "linear", "concave", "convex"]

_SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": torch.ones_like,
    "linear": lambda share: share,
    "concave": lambda share: share * (2 - share),
    "convex": torch.square,
}


class Compensation(nn.Module):
    """Mixes computed and stored rows of the halo, in values and in gradients (LMC).

    A halo row is computed from its neighbors in the batch alone. It becomes `(1 - b) stored + b computed`, and its
    gradient `(1 - b) stored + b computed` too, with `b = beta score(share of its neighbors in the batch)`. The computed
    row receives the whole gradient, as in the released code. Shi et al., ICLR 2023, https://arxiv.org/abs/2302.00924

    Args:
        features: A history after each layer, with a warm start that ignores the stored rows of targets, `Mix(1.0)`.
            Empty if batches have no halo.
        gradients: The same for the gradients after each layer but the first and the last. The loss of the halo is the
            gradient after the last layer, and no weight depends on the halo's gradient after the first one.
        beta: Largest weight of a computed row, in [0, 1].
        score: How that weight rises with the share of neighbors in the batch, from 0 or 1 to 1.
    """

    def __init__(
        self,
        features: Sequence[History] = (),
        gradients: Sequence[History] = (),
        *,
        beta: float = 0.0,
        score: Score = "linear",
    ) -> None:
        super().__init__()
        check_beta(beta)
        if score not in get_args(Score):
            raise ValueError(f"`score` must be one of {', '.join(get_args(Score))}, got `{score}`")
        if len(gradients) != max(len(features) - 2, 0):
            raise ValueError(
                f"{len(features)} histories of features need {max(len(features) - 2, 0)} of gradients, "
                f"got {len(gradients)}"
            )
        self.features, self.gradients = list(features), list(gradients)
        self.beta, self.score = beta, score

    def forward(self, index: int, x: Tensor, batch: Batch) -> Tensor:
        """Returns the output of layer `index` with its halo mixed, and mixes its gradient later, [V, C]."""
        if len(batch.nodes) == batch.num_targets:
            return x
        if not (self.training and self.features and batch.ring is not None):
            raise ValueError(
                'a halo needs histories in training and a loader with `halo="induced"`; evaluate with '
                "`model.infer(graph)` or `Batch.full`"
            )
        targets, halo = x[: batch.num_targets], x[batch.num_targets :]
        weight = self.beta * _SCORES[self.score](batch.ring.coverage).to(x.dtype).unsqueeze(1)
        stored = add_halo(self.features[index], targets.detach(), batch)[batch.num_targets :]
        x = torch.cat((targets, halo + (1 - weight) * (stored - halo.detach())))
        if 0 < index < len(self.features) - 1:
            mixed: Tensor = _MixGradients.apply(x, weight, self.gradients[index - 1], batch)  # type: ignore[no-untyped-call]
            return mixed
        return x


class _MixGradients(Function):
    """Returns its input; the gradient of the halo is mixed with the stored one, that of the targets is stored."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, history: History, batch: Batch) -> Tensor:
        ctx.history, ctx.batch = history, batch
        ctx.save_for_backward(weight)
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (weight,) = ctx.saved_tensors
        size = ctx.batch.num_targets
        mixed = add_halo(ctx.history, grad[:size].contiguous(), ctx.batch).to(grad.dtype)
        return torch.cat((grad[:size], torch.lerp(mixed[size:], grad[size:], weight))), None, None, None
