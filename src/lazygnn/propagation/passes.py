"""The equations of the paper: start, steps, push. Read this file first.

One step is `x <- (1 - alpha) A x + alpha x_in`, Eq. (4). Its fixed point solves Eq. (1). By the implicit function
theorem the gradient is the same iteration run on the gradient, Eqs. (8)-(12), so nothing is kept for the backward pass.

A lazy pass starts from what the last pass has propagated, takes `L` steps, and stores the result:

                forward, M_fea                                    backward, M_grad
    start       x_0 = (1 - beta) M_fea + beta x_in                g_L = (1 - gamma) M_grad + gamma grad
    steps       x_{l+1} = (1 - alpha) A x_l + alpha x_in          g_l = (1 - alpha) A g_{l+1} + alpha grad
    push        M_fea = x_L, for targets                          M_grad = g_0, for targets

Both columns are `run_pass`, with `fresh` for `x_in` and `grad = dL/dx_L`. The warm start of a history holds its beta or
gamma. A full batch is a batch whose targets are all nodes, so Eqs. (5)-(7) and (13)-(14) are Eqs. (15)-(21).

`V` nodes of the batch, `T` targets among them (the first rows), `F` rows with a fresh value, `C` channels.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn import ops
from lazygnn.batch import Batch
from lazygnn.history import History, Start, pad_rows
from lazygnn.ops import Adjacency
from lazygnn.propagation import label_step
from lazygnn.propagation.response import Response


class Rule(NamedTuple):
    """What a pass depends on besides its batch."""

    alpha: float
    features: History  # M_fea
    gradients: History  # M_grad
    response: Response  # weights of what is new in `fresh`, in the start and in every step; plain steps have ones
    observe: Callable[[Tensor, Tensor], None] | None = None  # receives the gradient before and after a backward pass


def propagate(x_in: Tensor, batch: Batch, rule: Rule) -> Tensor:
    """Propagates the targets of a batch, [F, C] -> [T, C]."""
    out: Tensor = _LazyPass.apply(x_in, batch, rule)  # type: ignore[no-untyped-call]
    return out


class _LazyPass(Function):
    @staticmethod
    def forward(ctx: Any, x_in: Tensor, batch: Batch, rule: Rule) -> Tensor:
        ctx.batch, ctx.rule, ctx.num_fresh = batch, rule, len(x_in)
        x, previous = run_pass(x_in, batch, batch.adjs, rule.features, rule)  # Eqs. (5)-(7), (16)-(18)
        if batch.labelled is not None:
            # the result may still be on its way to the history, and without a step it is the input itself
            in_place = rule.features.copies_at_once and len(batch.adjs) > 0
            share = rule.response.sources[-1]
            x = label_step.forward(x, x_in, previous, batch.labelled, rule.alpha, share, in_place=in_place)
        return x[: batch.num_targets]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        batch, rule = ctx.batch, ctx.rule
        grad = pad_rows(grad.contiguous(), ctx.num_fresh)  # the halo has no loss
        if batch.labelled is None:
            g, _ = run_pass(grad, batch, batch.backward_adjs, rule.gradients, rule)  # Eqs. (13)-(14), (19)-(21)
        else:
            g = label_step.backward(grad, batch.labelled, batch.adjs, rule.response.polynomial(rule.alpha))
        if rule.observe is not None:
            rule.observe(grad, g)
        return pad_rows(g[: batch.num_targets], ctx.num_fresh), None, None  # the halo gets no gradient


def run_pass(fresh: Tensor, batch: Batch, adjs: Sequence[Adjacency], history: History, rule: Rule) -> Start:
    """Starts from the history, takes a step for each matrix, and stores the targets.

    Returns:
        The result, [V, C], and the input of the last visit if the response needs it, [F, C].
    """
    alpha, response = rule.alpha, rule.response
    x, previous = history.start(  # Eqs. (6), (13), (16), (19)
        batch.nodes, batch.num_targets, fresh, response.start, with_then=not response.is_plain
    )
    shares = response.sources[: len(adjs)]
    x = ops.run_steps(adjs, x, fresh, alpha, shares=shares, past=previous)  # Eqs. (7), (14), (17), (20)
    history.push(batch.targets, x, fresh)  # Eqs. (18), (21)
    return Start(x, previous)
