"""The equations of the paper: start, steps, push. Read this file first.

One step is `x <- (1 - alpha) A x + alpha x_in`, Eq. (4). Its fixed point solves Eq. (1). By the implicit function
theorem the gradient is the same iteration run on the gradient, Eqs. (8)-(12), so nothing is kept for the backward pass.

A lazy pass starts from the result of the last pass, takes `L` steps, and stores the result:

                forward, M_fea                                    backward, M_grad
    start       x_0 = (1 - beta) M_fea + beta x_in                g_L = (1 - gamma) M_grad + gamma grad
    steps       x_{l+1} = (1 - alpha) A x_l + alpha x_in          g_l = (1 - alpha) A g_{l+1} + alpha grad
    push        M_fea = x_L, for targets                          M_grad = g_0, for targets

Both columns are `run_pass`, with `fresh` for `x_in` and for `grad = dL/dx_L`. A history starts a pass by its warm
start, which is `Mix` in the paper. The targets of a full batch are all nodes, so one function serves the equations of
full batches, (5)-(7) and (13)-(14), and of mini-batches, (15)-(21).

`V` nodes of the batch, `T` targets among them (the first rows), `F` rows with a fresh value, `C` channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn import ops
from lazygnn.batch import Batch
from lazygnn.history import History, Start, pad_rows
from lazygnn.history.warmstart import Blend, WarmStart, check_beta
from lazygnn.ops import Adjacency
from lazygnn.propagation import label_step
from lazygnn.propagation.response import Response


class Rule(NamedTuple):
    """What a pass depends on besides its batch."""

    alpha: float
    features: History  # M_fea
    gradients: History  # M_grad
    response: Response  # weights of a change of `fresh`, in the start value and in every step; ones for plain steps
    observe: Callable[[Tensor, Tensor], None] | None = None  # receives the gradient before and after a backward pass
    sign: int = 1  # -1 subtracts the products: the high-pass, ours


def propagate(x_in: Tensor, batch: Batch, rule: Rule) -> Tensor:
    """Propagates the targets of a batch, [F, C] -> [T, C]."""
    out: Tensor = _LazyPass.apply(x_in, batch, rule)  # type: ignore[no-untyped-call]
    return out


class _LazyPass(Function):
    @staticmethod
    def forward(ctx: Any, x_in: Tensor, batch: Batch, rule: Rule) -> Tensor:
        ctx.batch, ctx.rule, ctx.num_fresh = batch, rule, len(x_in)
        x, previous, _ = run_pass(x_in, batch, batch.adjs, rule.features, rule)  # Eqs. (5)-(7), (16)-(18)
        if batch.labeled is not None:
            # the history may not have copied the result yet, and without a step the result is the input itself
            in_place = rule.features.copies_at_once and len(batch.adjs) > 0
            weight = rule.response.sources[-1]
            x = label_step.forward(
                x, x_in, previous, batch.labeled, rule.alpha, weight, sign=rule.sign, in_place=in_place
            )
        return x[: batch.num_targets]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        batch, rule = ctx.batch, ctx.rule
        grad = pad_rows(grad.contiguous(), ctx.num_fresh)  # the halo has no loss
        if batch.labeled is None:
            g = run_pass(grad, batch, batch.backward_adjs, rule.gradients, rule).x  # Eqs. (13)-(14), (19)-(21)
        else:
            polynomial = rule.response.polynomial(rule.alpha, rule.sign)
            g = label_step.backward(grad, batch.labeled, batch.adjs, polynomial)
        if rule.observe is not None:
            rule.observe(grad, g)
        return pad_rows(g[: batch.num_targets], ctx.num_fresh), None, None  # the halo gets no gradient


def run_pass(fresh: Tensor, batch: Batch, adjs: Sequence[Adjacency], history: History, rule: Rule) -> Start:
    """Starts from the history, takes a step for each matrix, and stores the targets.

    Returns:
        What the pass started from, with the result in place of the start value, [V, C].
    """
    response = rule.response
    start = history.start(  # Eqs. (6), (13), (16), (19)
        batch.nodes, batch.num_targets, fresh, response.start, with_previous=not response.is_plain
    )
    weights, previous = response.sources[: len(adjs)], start.previous
    x = ops.run_steps(  # Eqs. (7), (14), (17), (20)
        adjs, start.x, fresh, rule.alpha, weights=weights, previous=previous, sign=rule.sign
    )
    history.push(batch.targets, x, fresh)  # Eqs. (18), (21)
    return start._replace(x=x)


@dataclass(frozen=True)
class Mix(WarmStart):
    """The warm start of the paper, `(1 - beta) stored + beta fresh`; for gradients, `beta` is the paper's gamma.

    A weight of 1 ignores the history. Every pass scales the result of earlier ones by `1 - beta`, which shortens the
    reach.
    """

    beta: float
    stores_inputs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_beta(self.beta)

    def blend(self, weight: float = 1.0) -> Blend:
        """Scales the fresh value if `beta` is 1; otherwise the weight of a change must be 1."""
        if weight != 1 and self.beta < 1:
            raise ValueError(f"{self} stores no inputs, so the weight of a change must be 1, got {weight}")
        return Blend(self.beta, scale=weight)

    def targets(self, fresh: Tensor, stored: Tensor, previous: Tensor | None, weight: float = 1.0) -> Tensor:  # noqa: ARG002
        """Mixes stored and fresh rows."""
        x_0 = torch.lerp(stored, fresh, self.beta)  # Eqs. (6), (13), (16), (19)
        return x_0 if self.blend(weight).scale == 1 else weight * x_0
