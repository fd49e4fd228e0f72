"""A node's near and far view of the graph, `A u` and `P u`, from one history. Ours; not in the paper.

`P u` is what lazy propagation makes of `u`. Its history stores the input `u` and the solution `P u` of every node, so
in a mini-batch both views of the halo come from it: `A u` reads the stored inputs, `P u` the stored solutions.

The gradient of `P u` is a polynomial of `A`, evaluated step by step. The gradient of `A u` enters before the last of
these products, so it costs none of its own.

`V` nodes of the batch, `T` targets among them (the first rows), `C` channels.
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn import ops
from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.history import NoHistory, StoredHistory
from lazygnn.propagation.passes import Rule, run_pass


def near_and_far(u: Tensor, batch: Batch, rule: Rule) -> tuple[Tensor, Tensor]:
    """Returns `A u` and `P u` for the targets of a batch, [T, C] each.

    Args:
        u: Input of the targets, [T, C].
        batch: Any with a frozen halo, or the whole graph.
        rule: Without a history of gradients.
    """
    _check(u, batch, rule)
    near, far = _Views.apply(u, batch, rule)  # type: ignore[no-untyped-call]
    return near, far


class _Views(Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, batch: Batch, rule: Rule) -> tuple[Tensor, Tensor]:
        ctx.batch, ctx.rule = batch, rule
        far, _, halo = run_pass(u, batch, batch.adjs, rule.features, rule)
        near = ops.spmm(batch.adjs[0], u.to(far.dtype), halo)
        return near, far[: batch.num_targets]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_near: Tensor, grad_far: Tensor) -> tuple[Tensor, None, None]:
        batch, rule = ctx.batch, ctx.rule
        return _gradient(grad_near.contiguous(), grad_far.contiguous(), batch, rule), None, None


def _gradient(grad_near: Tensor, grad_far: Tensor, batch: Batch, rule: Rule) -> Tensor:
    """Returns `A^T grad_near + P^T grad_far`; the halo has no gradient and gets none."""
    alpha, sign, response = rule.alpha, rule.sign, rule.response
    num_halo = len(batch.nodes) - batch.num_targets
    halo = grad_far.new_zeros(1, grad_far.shape[1]).expand(num_halo, -1) if num_halo > 0 else None
    *adjs, last = batch.backward_adjs
    *weights, last_weight = response.sources
    if alpha == 1:
        return (last_weight * grad_far + ops.spmm(last, grad_near, halo))[: batch.num_targets]
    g = ops.run_steps(adjs, response.start * grad_far, grad_far, alpha, weights=weights, sign=sign, halo=halo)
    # the step multiplies by `sign (1 - alpha) A`
    g = g[: batch.num_targets].add(grad_near, alpha=sign / (1 - alpha))
    g = ops.run_steps([last], g, grad_far, alpha, weights=[last_weight], sign=sign, halo=halo)
    return g[: batch.num_targets]


def _check(u: Tensor, batch: Batch, rule: Rule) -> None:
    if not batch.adjs:
        raise ConfigError("the batch takes no steps; build it with `num_layers=2`")
    if len(u) != batch.num_targets or batch.labeled is not None:
        raise ConfigError(
            f"the input has {len(u)} rows for {batch.num_targets} targets; a near view needs batches with "
            "`halo=frozen` and without a step on labeled rows, or the whole graph"
        )
    if not isinstance(rule.gradients, NoHistory):
        raise ConfigError("a near view stores no gradients; omit `gradients`")
    if batch.whole:
        return
    if not isinstance(rule.features, StoredHistory) or not rule.features.halo_inputs:
        raise ConfigError("a near view of a part reads inputs of the halo; open the history with `halo_inputs=True`")
