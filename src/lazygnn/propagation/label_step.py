"""One more step on labeled rows, after the result of a pass has been stored. Ours; the paper has no such step.

The loss reads labeled rows alone, so a step on these rows makes its input more exact, at a fraction of the cost
of a full step. In the backward pass the gradient is zero on all other rows, so its first product reads these columns
alone.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.batch import Labeled
from lazygnn.errors import ConfigError
from lazygnn.ops import Adjacency, is_replaying


def forward(
    x: Tensor,
    fresh: Tensor,
    previous: Tensor | None,
    labeled: Labeled,
    alpha: float,
    weight: float,
    *,
    sign: int = 1,
    in_place: bool,
) -> Tensor:
    """Replaces the labeled rows of `x` by `(1 - alpha) A x + alpha lerp(previous, fresh, weight)`.

    Args:
        x: Result of a pass, [V, C].
        fresh: Its input.
        previous: Its input at the last visit; `None` means zero.
        labeled: The rows, and their rows of the matrix.
        alpha: Weight of the input.
        weight: Weight of the change of the input since the last visit.
        sign: -1 subtracts the product with `A`.
        in_place: Whether `x` may be overwritten.
    """
    source, before = fresh[labeled.rows], None if previous is None else previous[labeled.rows]
    near = ops.run_steps([labeled.adj], x, source, alpha, weights=(weight,), previous=before, sign=sign)
    return (x if in_place else x.clone()).index_copy_(0, labeled.rows, near)


def backward(grad: Tensor, labeled: Labeled, adjs: Sequence[Adjacency], polynomial: Sequence[float]) -> Tensor:
    """Applies the polynomial of a pass with its further step to a gradient that is zero outside of labeled rows.

    Evaluates the polynomial by Horner's rule; the gradient enters every step on the labeled rows alone.

    Args:
        grad: Gradient of the loss, [V, C].
        labeled: The rows, and the transpose of their rows of the matrix.
        adjs: Matrices of the pass; symmetric.
        polynomial: Coefficients, the constant term first.
    """
    rows, near = labeled.rows, _labeled_rows(grad, labeled)
    *lower, highest = polynomial
    g = ops.spmm(labeled.transposed, highest * near)
    for adj, weight in zip(adjs, reversed(lower[1:]), strict=True):
        g = ops.spmm(adj, g.index_add_(0, rows, weight * near))
    return g.index_add_(0, rows, lower[0] * near)


def _labeled_rows(grad: Tensor, labeled: Labeled) -> Tensor:
    """Returns the gradient on the labeled rows, [K, C], and refuses one that is not zero elsewhere.

    The check synchronizes with the device. One check is enough where every step has the same loss.
    """
    near = grad[labeled.rows]
    if not (labeled.checks and (labeled.same_loss or is_replaying())):
        if bool(torch.count_nonzero(grad) != torch.count_nonzero(near)):
            raise ConfigError("the loss has a gradient outside the training nodes; pass `label_step=False`")
        labeled.checks[:] = [True]
    return near
