"""The interface of propagation, and the propagation for prediction that all kinds share."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

from torch import Tensor, nn

from lazygnn import ops
from lazygnn.batch import Batch
from lazygnn.fixed_point import check_alpha, solve
from lazygnn.inference import by_columns
from lazygnn.ops import Adjacency


def diffuse(adjs: Sequence[Adjacency], x: Tensor, source: Tensor, alpha: float) -> Tensor:
    """Runs `x <- (1 - alpha) A x + alpha source` once for each matrix; rows it does not reach keep their value."""
    for adj in adjs:
        x = ops.step(adj, x, source, alpha)  # Eq. (4)
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
    """

    def __init__(self, alpha: float, *, eval_layers: int | None, eval_tolerance: float) -> None:
        super().__init__()
        check_alpha(alpha)
        self.alpha = alpha
        self.eval_layers = eval_layers
        self.eval_tolerance = eval_tolerance

    def infer(self, x_in: Tensor, adj: Adjacency, *, in_place: bool = False) -> Tensor:
        """Takes `eval_layers` exact steps from `x_in`, or solves for the fixed point where that is `None`."""

        def propagate(columns: Tensor) -> Tensor:
            if self.eval_layers is None:
                return solve(adj, columns, self.alpha, tolerance=self.eval_tolerance).x
            return diffuse([adj] * self.eval_layers, columns, columns, self.alpha)

        return by_columns(propagate, x_in, adj.device, in_place=in_place)
