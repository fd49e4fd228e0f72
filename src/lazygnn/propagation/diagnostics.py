"""Measures how far lazy propagation is from exact propagation, on a few columns and in host memory.

`N` nodes, `C` channels.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from lazygnn.fixed_point import solve
from lazygnn.history import History, StoredHistory
from lazygnn.inference import by_columns
from lazygnn.ops import Adjacency

# columns that are solved for, so that diagnosing stays cheap
MAX_COLUMNS = 16
_TOLERANCE = 1e-3
_PARTS = ("entered", "returned")


class Diagnostics:
    """Compares stored features and gradients with the fixed point."""

    def __init__(self) -> None:
        # of the last full batch: the gradient that entered the backward pass and the one that it returned
        self._gradients: tuple[Tensor, Tensor] | None = None

    def observe(self, grad: Tensor, g: Tensor) -> None:
        """Keeps some columns of a gradient before and after a backward pass, [N, C] each."""
        columns = _chosen(grad.shape[1])
        self._gradients = grad.cpu()[:, columns], g.cpu()[:, columns]

    def report(
        self, features: History, adj: Adjacency, alpha: float, x_in: Callable[[], Tensor], *, sign: int = 1
    ) -> dict[str, float]:
        """Returns `fixed_point_error`, and `gradient_cosine` and `gradient_length` if a gradient was observed.

        Args:
            features: The feature history.
            adj: The matrix, on the compute device.
            alpha: Weight of the input in every step.
            x_in: Computes the input of all nodes, for a history that stores none.
            sign: Sign of the products.
        """
        found = {}
        if isinstance(features, StoredHistory):
            found["fixed_point_error"] = self._stored_error(features, x_in, partial(_solve, adj, alpha, sign))
        if self._gradients is not None:
            (grad, g), self._gradients = self._gradients, None
            exact = _solve(adj, alpha, sign, grad)
            lengths = torch.linalg.vector_norm(g), torch.linalg.vector_norm(exact)
            found["gradient_cosine"] = float((g * exact).sum() / (lengths[0] * lengths[1]))
            found["gradient_length"] = float(lengths[0] / lengths[1])
        return found

    def state_dict(self) -> dict[str, Tensor]:
        """Returns what a checkpoint between a backward pass and its report stores; empty if nothing was observed."""
        return {} if self._gradients is None else dict(zip(_PARTS, self._gradients, strict=True))

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continues from a checkpoint."""
        self._gradients = (state[_PARTS[0]].clone(), state[_PARTS[1]].clone()) if state else None

    def _stored_error(
        self, features: StoredHistory, x_in: Callable[[], Tensor], solve_exactly: Callable[[Tensor], Tensor]
    ) -> float:
        """Returns `|stored - x_star| / |x_star|` for the inputs stored beside it, or else for `x_in()`."""
        columns = _chosen(features.values.channels)
        stored = features.values.read_columns(columns)
        kept = features.inputs
        inputs = x_in().cpu()[:, columns] if kept is None else kept.read_columns(columns)
        exact = solve_exactly(inputs)
        return float(torch.linalg.vector_norm(stored - exact) / torch.linalg.vector_norm(exact))


def named_diagnostics(model: nn.Module) -> dict[str, Diagnostics]:
    """Returns the diagnostics of a model by the path of their module."""
    return {
        path: value
        for path, module in model.named_modules()
        for value in vars(module).values()
        if isinstance(value, Diagnostics)
    }


def _chosen(channels: int) -> Tensor:
    """Returns at most `MAX_COLUMNS` columns, evenly spaced."""
    return torch.arange(0, channels, -(-channels // MAX_COLUMNS))


def _solve(adj: Adjacency, alpha: float, sign: int, x: Tensor) -> Tensor:
    def propagate(columns: Tensor) -> Tensor:
        return solve(adj, columns, alpha, tolerance=_TOLERANCE, sign=sign).x

    return by_columns(propagate, x, adj.device, in_place=True)
