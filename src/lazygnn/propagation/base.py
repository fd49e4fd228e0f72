"""The interface of propagation, and the propagation for prediction that all kinds share."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn

from lazygnn import ops
from lazygnn.batch import Batch, check_batch
from lazygnn.errors import ConfigError
from lazygnn.fixed_point import check_alpha, check_products, check_sign, solve
from lazygnn.inference import by_columns, multiply
from lazygnn.ops import Adjacency

# tolerance of an estimate that starts from its input, and of one that starts from a stored solution; the bound is about
# four times the error of the latter, so both change an accuracy by about a tenth of a point
ESTIMATE_TOLERANCE = 0.01
WARM_TOLERANCE = 0.07


def diffuse(adjs: Sequence[Adjacency], x: Tensor, source: Tensor, alpha: float, *, sign: int = 1) -> Tensor:
    """Runs `x <- (1 - alpha) A x + alpha source` once for each matrix; rows it does not reach keep their value.

    A `sign` of -1 subtracts the product.
    """
    for adj in adjs:
        x = ops.step(adj, x, source, alpha, sign=sign)  # Eq. (4)
    return x


class Propagation(nn.Module):
    """Spreads transformed features over the graph. Has no weights of its own."""

    @abstractmethod
    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """Propagates in training, [F, C] -> [T, C]."""

    @abstractmethod
    def infer(self, x_in: Tensor, adj: Adjacency, *, in_place: bool = False) -> Tensor:
        """Propagates over the whole graph for prediction, [N, C] -> [N, C]. Reads no history.

        The matrix is on the compute device. `x_in` may be in host memory or in a memory map, and so is the result,
        which overwrites `x_in` if `in_place` is set.
        """

    def fill(self, x_in: Tensor, batch: Batch) -> None:
        """Stores a first history for the targets of a batch. Does nothing without histories."""

    def diagnose(self, adj: Adjacency, x_in: Callable[[], Tensor]) -> dict[str, float]:  # noqa: ARG002
        """Returns errors of the histories against exact values, by name; empty without histories."""
        return {}


def whole_matrix(batch: Batch) -> Adjacency:
    """Returns the matrix of the whole graph; refuses the batch of a part."""
    check_batch(batch)
    if not batch.whole or not batch.adjs:
        raise ValueError("evaluation propagates over the whole graph; use `model.infer(graph)` or `Batch.full`")
    return batch.adjs[0]


class NoPropagation(Propagation):
    """Ignores the graph: a plain MLP, the baseline that every graph method must beat."""

    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        """Returns the targets unchanged."""
        return x_in[: batch.num_targets]

    def infer(self, x_in: Tensor, adj: Adjacency, *, in_place: bool = False) -> Tensor:  # noqa: ARG002
        """Returns the input unchanged."""
        return x_in


class Diffusion(Propagation):
    """Base of all kinds that iterate Eq. (4): predicts by `eval_layers` steps, or to `eval_tolerance`.

    Args:
        alpha: Weight of `x_in` in every step, in (0, 1].
        eval_layers: Exact steps in inference; `None` solves for the fixed point.
        eval_tolerance: Tolerance of that fixed point, relative to its input.
        sign: 1 for the low-pass of Eq. (4), -1 for the high-pass, which subtracts the product with `A`.

    Attributes:
        estimates: Whether `infer` may stop early and start from stored values, as validation in training does.
    """

    def __init__(self, alpha: float, *, eval_layers: int | None, eval_tolerance: float, sign: int = 1) -> None:
        super().__init__()
        check_alpha(alpha)
        check_sign(sign)
        if eval_layers is None:
            check_products("alpha", alpha, eval_tolerance)
        self.alpha = alpha
        self.sign = sign
        self.eval_layers = eval_layers
        self.eval_tolerance = eval_tolerance
        self.estimates = False

    def infer(self, x_in: Tensor, adj: Adjacency, *, in_place: bool = False) -> Tensor:
        """Takes `eval_layers` exact steps from `x_in`, or solves for the fixed point where that is `None`."""
        check_rows(x_in, adj)
        if self.eval_layers is not None:
            steps = [adj] * self.eval_layers
            return by_columns(
                lambda x: diffuse(steps, x, x, self.alpha, sign=self.sign),
                x_in,
                adj.device,
                in_place=in_place,
                num_rows=adj.num_cols,
            )
        tolerance, stored = self.eval_tolerance, list[Tensor]()
        if self.estimates:
            stored = self.stored_rows(x_in)
            tolerance = max(tolerance, WARM_TOLERANCE if stored else ESTIMATE_TOLERANCE)

        def propagate(columns: Tensor, *stored: Tensor) -> Tensor:
            start = self.near_solution(adj, columns, *stored) if stored else None
            return solve(adj, columns, self.alpha, tolerance=tolerance, sign=self.sign, start=start).x

        return by_columns(propagate, x_in, adj.device, *stored, in_place=in_place, num_rows=adj.num_cols)

    def stored_rows(self, x_in: Tensor) -> list[Tensor]:  # noqa: ARG002
        """Returns what a history knows about the fixed point, [N, C] each; empty without one."""
        return []

    def near_solution(self, adj: Adjacency, x_in: Tensor, *stored: Tensor) -> Tensor:  # noqa: ARG002
        """Returns a value near the fixed point from columns of `stored_rows`, [N, C]: the stored solution itself."""
        return stored[0]


def check_rows(x: Tensor, adj: Adjacency) -> None:
    """Refuses an input of other nodes than those of a graph."""
    if len(x) != adj.num_rows:
        raise ConfigError(
            f"the input has {len(x)} rows, and the graph has {adj.num_rows} nodes; give one row a node, in order"
        )


def solves(model: nn.Module) -> bool:
    """Returns whether inference solves for a fixed point, which can be estimated."""
    return any(isinstance(each, Diffusion) and each.eval_layers is None for each in model.modules())


@contextmanager
def estimating(model: nn.Module) -> Iterator[None]:
    """Lets inference estimate fixed points within the context."""
    found = [each for each in model.modules() if isinstance(each, Diffusion)]
    for each in found:
        each.estimates = True
    try:
        yield
    finally:
        for each in found:
            each.estimates = False


def exact_views(propagation: Propagation, x_in: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Returns `A x_in` and the propagated rows of all nodes for prediction, [N, C] each."""
    adj = whole_matrix(batch)
    check_rows(x_in, adj)
    return multiply(adj, x_in), propagation.infer(x_in, adj)
