"""Propagation, exact and lazy: the equations of the paper. Read this file first.

One step is `x <- (1 - alpha) A x + alpha x_in`, Eq. (4). Its fixed point solves Eq. (1); its gradient is the same
iteration run on the gradient, Eqs. (11)-(12), so no intermediate value is ever kept for the backward pass.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn import ops
from lazygnn.batch import Batch, Labelled, check_batch
from lazygnn.errors import ConfigError, wrong_type
from lazygnn.fixed_point import check_alpha, solve
from lazygnn.graph import check_num_nodes
from lazygnn.history import History, NoHistory, StoredHistory, pad_rows
from lazygnn.history.warmstart import Mix
from lazygnn.inference import by_columns
from lazygnn.ops import Adjacency
from lazygnn.propagation.response import Response

DIAGNOSED_COLUMNS = 16


def diffuse(adjs: Sequence[Adjacency], x: Tensor, source: Tensor, alpha: float) -> Tensor:
    """Runs `x <- (1 - alpha) A x + alpha source` once for each matrix; rows it does not reach keep their value."""
    for adj in adjs:
        x = ops.step(adj, x, source, alpha)
    return x


class Propagation(nn.Module):
    """Spreads transformed features over the graph; has no weights of its own."""

    @abstractmethod
    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """Propagates in training, [F, C] -> [T, C]."""

    @abstractmethod
    def infer(self, x_in: Tensor, adj: Adjacency, *, in_place: bool = False) -> Tensor:
        """Propagates over the whole graph as prediction should, [N, C] -> [N, C]; reads no history.

        The matrix lies on the compute device; `x_in` may lie in host memory or a memory map, and so does the result,
        which takes the place of `x_in` if asked to.
        """

    def fill(self, x_in: Tensor, batch: Batch) -> None:
        """Gives every target a first history; where there is none, there is nothing to do."""


class NoPropagation(Propagation):
    """Leaves the graph out: a plain MLP, the baseline every graph method must beat."""

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """The targets as they are."""
        return x_in[: batch.num_targets]

    def infer(self, x_in: Tensor, adj: Adjacency, *, in_place: bool = False) -> Tensor:  # noqa: ARG002
        """The input as it is."""
        return x_in


class Diffusion(Propagation):
    """Steps of Eq. (4), and inference by `eval_layers` steps or to `eval_tolerance`; the base of what follows."""

    def __init__(self, alpha: float, *, eval_layers: int | None, eval_tolerance: float) -> None:
        super().__init__()
        check_alpha(alpha)
        self.alpha = alpha
        self.eval_layers = eval_layers
        self.eval_tolerance = eval_tolerance

    def see_gradient(self, grad: Tensor, g: Tensor, batch: Batch) -> None:
        """Is shown what came into a backward pass and what went out; has no use for it."""

    def infer(self, x_in: Tensor, adj: Adjacency, *, in_place: bool = False) -> Tensor:
        """`eval_layers` exact steps from `x_in`, or the fixed point where `eval_layers` is `None`."""

        def propagate(columns: Tensor) -> Tensor:
            if self.eval_layers is None:
                return solve(adj, columns, self.alpha, tolerance=self.eval_tolerance).x
            return diffuse([adj] * self.eval_layers, columns, columns, self.alpha)

        return by_columns(propagate, x_in, adj.device, in_place=in_place)


class ExactPropagation(Diffusion):
    """Starts every pass from `x_in` (APPNP, Eqs. 2-4); https://arxiv.org/abs/1810.05997.

    With one symmetric matrix the gradient is the same polynomial in `A`, so memory does not grow with the steps.

    Args:
        alpha: Weight of `x_in` in every step, in (0, 1].
        num_layers: Number of steps, in training and in inference.
    """

    def __init__(self, alpha: float, num_layers: int) -> None:
        super().__init__(alpha, eval_layers=num_layers, eval_tolerance=0.0)
        self.features: History = NoHistory()
        self.gradients: History = NoHistory()
        self.response: Response | None = None

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """Propagates over a full batch."""
        if any(adj is not batch.adjs[0] for adj in batch.adjs):
            raise ValueError("exact propagation needs the whole graph in a batch; build it with `Batch.full`")
        return _propagate(x_in, batch, self)


class LazyPropagation(Diffusion):
    """Propagates a few steps and lets training iterations do the rest (LazyGNN, Eqs. 5-14 and 15-21).

    Starts from the features stored for these nodes, corrected by the fresh ones, and differentiates through the fixed
    point instead of the steps taken, so nothing is kept for backward.

    Args:
        alpha: Weight of `x_in` in every step, in (0, 1].
        features: History of what the forward pass has propagated; its warm start holds `beta`.
        gradients: The same for the backward pass and `gamma`; `None` keeps nothing and starts from the fresh gradient.
        response: How a pass answers a change of its input, forward and backward; `None` takes plain steps. Anything
            else needs a feature history that keeps inputs. A step on labelled rows is one more step of it.
        eval_layers: Exact steps in inference; `None` solves for the fixed point.
        eval_tolerance: Tolerance of that fixed point, relative to its input.
    """

    def __init__(
        self,
        alpha: float,
        features: History,
        gradients: History | None = None,
        *,
        response: Response | None = None,
        eval_layers: int | None = None,
        eval_tolerance: float = 1e-4,
    ) -> None:
        super().__init__(alpha, eval_layers=eval_layers, eval_tolerance=eval_tolerance)
        self.features = features
        self.gradients: History = NoHistory() if gradients is None else gradients
        self.response = response
        for name, history in {"features": self.features, "gradients": self.gradients}.items():
            _check_history(name, history)
            if response is not None:
                _check_keeps_inputs(history)
        if response is not None:
            _check_fit(response, alpha, self.features)
        # of the last full batch while the features are measured: what came into the backward pass and what went out
        self._seen: tuple[Tensor, Tensor] | None = None

    def fill(self, x_in: Tensor, batch: Batch) -> None:
        """Stores the targets' input as their first solution, so that no halo row is ever empty."""
        self.features.push(batch.targets, x_in, x_in)

    def stored_error(self, adj: Adjacency, x_in: Callable[[], Tensor]) -> float | None:
        """`|stored - x_star| / |x_star|` for the inputs stored beside it, or else for `x_in()`.

        Looks at `DIAGNOSED_COLUMNS` of the columns at most, in host memory: a look must not cost what it looks at.
        """
        if not isinstance(self.features, StoredHistory):
            return None
        columns = _diagnosed(self.features.values.channels)
        stored = self.features.values.read_columns(columns)
        kept = self.features.inputs
        inputs = x_in().cpu()[:, columns] if kept is None else kept.read_columns(columns)
        solution = self._solve(adj, inputs)
        return float(torch.linalg.vector_norm(stored - solution) / torch.linalg.vector_norm(solution))

    def gradient_error(self, adj: Adjacency) -> tuple[float, float] | None:
        """Cosine and relative length of the last gradient against the exact one, Eq. (10), on the same columns.

        `None` where no full batch was differentiated while the features were measured.
        """
        if self._seen is None:
            return None
        (grad, g), self._seen = self._seen, None
        solution = self._solve(adj, grad)
        lengths = torch.linalg.vector_norm(g), torch.linalg.vector_norm(solution)
        return float((g * solution).sum() / (lengths[0] * lengths[1])), float(lengths[0] / lengths[1])

    def see_gradient(self, grad: Tensor, g: Tensor, batch: Batch) -> None:
        """Keeps what `gradient_error` looks at, if it is asked for."""
        if batch.whole and isinstance(self.features, StoredHistory) and self.features.measure:
            columns = _diagnosed(grad.shape[1])
            self._seen = grad.cpu()[:, columns], g.cpu()[:, columns]

    def _solve(self, adj: Adjacency, x: Tensor) -> Tensor:
        return by_columns(lambda part: solve(adj, part, self.alpha, tolerance=1e-3).x, x, adj.device, in_place=True)

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """Propagates the batch lazily; in evaluation mode exactly, which needs the whole graph."""
        check_batch(batch)
        if self.training:
            if batch.labelled is not None and not isinstance(self.gradients, NoHistory):
                raise ConfigError(
                    "a step on labelled rows keeps no gradient; make the batch with `label_step=False`, or keep none: "
                    "`gradients=None`, or `gradient_start=None` of `LazyGNN`"
                )
            return _propagate(x_in, batch, self)
        if not batch.whole or not batch.adjs:
            raise ValueError("evaluation propagates over the whole graph; use `model.infer(graph)` or `Batch.full`")
        return self.infer(x_in, batch.adjs[0])


def _check_fit(response: Response, alpha: float, features: History) -> None:
    """Refuses what is no response, and one that was fitted to other passes than these."""
    if not isinstance(response, Response):
        raise ConfigError(wrong_type("response", response, "give what `fit_response` returns, or leave it out"))
    mix = features.warm.blend().mix if isinstance(features, StoredHistory) else None
    for name, fitted, taken in (("alpha", response.alpha, alpha), ("mix", response.mix, mix)):
        if fitted is not None and taken is not None and not math.isclose(fitted, taken, rel_tol=1e-6, abs_tol=1e-6):
            raise ConfigError(
                f"the response is fitted to `{name}={fitted:g}`, this propagation has {taken:g}; "
                f"fit it with `fit_response(..., {name}={taken:g})`"
            )


def _check_history(name: str, history: object) -> None:
    if not isinstance(history, History):
        raise ConfigError(wrong_type(name, history, "open one with `open_history(num_nodes, channels, Drift())`"))


def _check_keeps_inputs(history: History) -> None:
    # where all that is fresh counts as new, there is nothing to keep
    if isinstance(history, StoredHistory) and history.inputs is None and history.warm != Mix(1.0):
        raise ConfigError(
            f"a response to changes needs a history that keeps inputs; {history.warm} keeps none: "
            f"open it with `Drift(...)`, or leave `response` out"
        )


def _check_channels(history: StoredHistory, fresh: Tensor) -> None:
    kept, given = history.values.channels, fresh.shape[1]
    if kept != given:
        raise ConfigError(f"the history keeps {kept} columns, {given} are propagated; open it with `channels={given}`")


def _diagnosed(channels: int) -> Tensor:
    """The columns that a look takes."""
    return torch.arange(0, channels, -(-channels // DIAGNOSED_COLUMNS))


def _propagate(x_in: Tensor, batch: Batch, prop: ExactPropagation | LazyPropagation) -> Tensor:
    out: Tensor = _Propagate.apply(x_in, batch, prop)  # type: ignore[no-untyped-call]
    return out


class _Propagate(Function):
    @staticmethod
    def forward(ctx: Any, x_in: Tensor, batch: Batch, prop: ExactPropagation | LazyPropagation) -> Tensor:
        x = _pass(x_in, batch, prop, prop.features, batch.adjs, batch.labelled)
        ctx.batch, ctx.prop, ctx.num_fresh = batch, prop, len(x_in)
        return x[: batch.num_targets]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        batch, prop = ctx.batch, ctx.prop
        grad = pad_rows(grad.contiguous(), ctx.num_fresh)  # the halo has no loss
        if batch.labelled is None:
            g = _pass(grad, batch, prop, prop.gradients, batch.backward_adjs)
        else:
            g = _pass_from_labels(grad, batch, batch.labelled, prop)
        prop.see_gradient(grad, g, batch)
        return pad_rows(g[: batch.num_targets], ctx.num_fresh), None, None


def _pass(
    fresh: Tensor,
    batch: Batch,
    prop: ExactPropagation | LazyPropagation,
    history: History,
    adjs: Sequence[Adjacency],
    labelled: Labelled | None = None,
) -> Tensor:
    """Eqs. (16)-(18) with the features and their history, Eqs. (19)-(21) with the gradients and theirs.

    What is stored has not taken the step on labelled rows.
    """
    response, nodes = _response(batch, prop), batch.nodes
    if isinstance(history, StoredHistory):
        _check_channels(history, fresh)
        if batch.whole:
            check_num_nodes(history.values.num_rows, len(nodes))
    with_then = not response.is_plain
    x, then = history.start(nodes, batch.num_targets, fresh, response.start, with_then=with_then)  # Eqs. (16), (19)
    shares = response.sources[: len(adjs)]
    x = ops.run_steps(adjs, x, fresh, prop.alpha, shares=shares, past=then)  # Eqs. (17), (20)
    history.push(batch.targets, x, fresh)  # Eqs. (18), (21)
    if labelled is None:
        return x
    source, past = fresh[labelled.rows], None if then is None else then[labelled.rows]
    near = ops.run_steps([labelled.adj], x, source, prop.alpha, shares=response.sources[-1:], past=past)
    # what was pushed may still be on its way, and without a step it is what came in
    own = x if history.copies_at_once and batch.adjs else x.clone()
    return own.index_copy_(0, labelled.rows, near)


def _pass_from_labels(
    grad: Tensor, batch: Batch, labelled: Labelled, prop: ExactPropagation | LazyPropagation
) -> Tensor:
    """Eqs. (19)-(20) for a gradient that is zero but on labelled rows: its first product needs no other rows.

    Its polynomial by Horner's rule; where the fresh gradient enters a step, it enters these rows alone.
    """
    rows, near = labelled.rows, labelled.take(grad)
    *lower, highest = _response(batch, prop).polynomial(prop.alpha)
    g = ops.spmm(labelled.transposed, highest * near)
    for adj, weight in zip(batch.adjs, reversed(lower[1:]), strict=True):
        g = ops.spmm(adj, g.index_add_(0, rows, weight * near))
    return g.index_add_(0, rows, lower[0] * near)


def _response(batch: Batch, prop: ExactPropagation | LazyPropagation) -> Response:
    num_layers, further = len(batch.adjs), int(batch.labelled is not None)
    if prop.response is None:
        return Response.plain(num_layers + further)
    steps, beyond = len(prop.response.sources), prop.response.further
    if steps != num_layers + further or beyond not in (None, further):
        fitted = f"{steps} steps" if beyond is None else f"`num_layers={steps - beyond}, further={beyond}`"
        taken = f"{num_layers} and one on labelled rows" if further else f"{num_layers}, none on labelled rows"
        raise ConfigError(
            f"the response is for {fitted}, a pass over this batch takes {taken}; fit it with "
            f"`num_layers={num_layers}, further={further}`"
        )
    return prop.response
