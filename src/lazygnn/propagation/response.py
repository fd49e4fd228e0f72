"""The response of a pass to a change of its input: plain steps, or steps fitted to the graph. Ours; not in the paper.

A pass of `L` steps turns a change `D` of its input into `P(A) D`, with a polynomial `P` of degree `L`. Over many passes
an input that does not change is turned into `h(A) x_in`. Plain steps are one choice of `P`. They follow a change that
is smooth over the graph and pass on too much of a rough one, such as the noise of dropout. The fitted response is the
polynomial nearest to `h` on random inputs of the graph; see docs/concepts/staleness.md.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.errors import GraphError, check_number, wrong_type
from lazygnn.fixed_point import check_alpha, check_sign
from lazygnn.ops import Adjacency, Csr, run_steps, spmm

# random inputs that a response is fitted to
PROBES = 8
# `P(1)` of a fit: a smaller level passes on less noise, a larger one lags less; a further step allows a larger one
LEVEL, LEVEL_FURTHER = 0.8, 0.85
# relative error of the slowest mode of the steady response
_TOLERANCE = 1e-3
# decimals that are kept, so that runs on different devices have the same response
_DECIMALS = 3


@dataclass(frozen=True)
class Response:
    """Weights of a change of the input: in the start value, and in the source of every step.

    With `D = x_in - x_before` and the warm start's `beta`, a pass is `x <- lerp(stored, x_before, beta) + start D`,
    then `x <- (1 - alpha) A x + alpha (x_before + sources[l] D)` for every step. All weights treat an input that does
    not change alike.

    Attributes:
        start: Weight in the start value.
        sources: Weight in the source of each step.
        further: How many of the steps follow after the result is stored, such as a step on labeled rows.
    """

    start: float
    sources: tuple[float, ...]
    further: int = 0

    @staticmethod
    def plain(num_layers: int, further: int = 0) -> "Response":
        """Returns weights of one: plain steps with the fresh input."""
        return Response(1.0, (1.0,) * (num_layers + further), further)

    @property
    def num_layers(self) -> int:
        """Returns the number of steps before the result is stored."""
        return len(self.sources) - self.further

    @property
    def is_plain(self) -> bool:
        """Returns whether every weight is one."""
        return self.start == 1 and set(self.sources) <= {1.0}

    def polynomial(self, alpha: float, sign: int = 1) -> list[float]:
        """Returns the coefficients of `P`, the constant term first."""
        keep, last = sign * (1 - alpha), len(self.sources)
        steps = [alpha * weight * keep ** (last - 1 - step) for step, weight in enumerate(self.sources)]
        return [*reversed(steps), self.start * keep**last]


@torch.no_grad()
def fit_response(
    adj: Adjacency,
    alpha: float,
    num_layers: int,
    *,
    further: int = 0,
    beta: float = 0.0,
    level: float | None = None,
    seed: int = 0,
    sign: int = 1,
) -> Response:
    """Fits the `P` nearest to `h` in least squares over random inputs, with `P(1) = level`.

    The steady response follows the smoothest input fully, `h(1) = 1`. With a smaller level at this one point,
    `P` is closer to `h` everywhere else. The rest of a smooth change is followed in later passes.

    Args:
        adj: Normalized and symmetric.
        alpha: Weight of the input in a step.
        num_layers: Steps of a pass before its result is stored.
        further: Steps after that, such as a step on labeled rows.
        beta: Weight of the fresh input in the start of every pass.
        level: `P(1)`, in (0, 1]; `None` is 0.8, and 0.85 with `further` steps.
        seed: Seed of the random inputs.
        sign: Sign of the products of a step; with -1, `P` and `h` are those of `-A`.
    """
    if not isinstance(adj, Csr):
        raise GraphError(wrong_type("adj", adj, "give the matrix of a graph, `graph.adj`"))
    check_alpha(alpha)
    check_sign(sign)
    level = default_level(further) if level is None else level
    _check_fit(num_layers, further, beta, level, seed)
    degree = num_layers + further
    # a pass does not depend on its history, or not on the graph
    if 1 in (beta, alpha):
        return Response.plain(num_layers, further)
    generator = torch.Generator().manual_seed(seed)
    probe = ops.own_rows(adj, torch.randn(adj.num_cols, PROBES, generator=generator))
    probe = probe.to(adj.device, adj.value.dtype)
    powers = [probe]
    for _ in range(degree):
        powers.append(sign * spmm(adj, powers[-1]))
    steady = steady_response(adj, probe, alpha, num_layers, beta, sign)
    wanted = run_steps([adj] * further, steady, probe, alpha, sign=sign) - level * probe
    # P = level + (A - I) (b_0 + b_1 A + ...), so that P(1) = level whatever the b are
    basis = torch.stack([(after - before).flatten() for before, after in pairwise(powers)], dim=1).double()
    gram, target = (ops.total(adj, part).cpu() for part in (basis.T @ basis, basis.T @ wanted.flatten().double()))
    b = torch.linalg.lstsq(gram, target.unsqueeze(1)).solution.flatten().tolist()
    coefficients = [level, *[0.0] * degree]
    for power, weight in enumerate(b):
        coefficients[power] -= weight
        coefficients[power + 1] += weight
    return _from_polynomial(coefficients, alpha, further)


def default_level(further: int) -> float:
    """Returns the default level of a fit."""
    return LEVEL_FURTHER if further else LEVEL


def steady_response(adj: Adjacency, x_in: Tensor, alpha: float, num_layers: int, beta: float, sign: int = 1) -> Tensor:
    """Returns what passes converge to if their input never changes, `h(A) x_in`.

    With `beta = 0` that is the fixed point of Eq. (1); a larger one shortens the reach. With 0.1 and two steps it is
    close to ten steps from the input, where exact methods stop.
    """
    kept = (1 - beta) * (1 - alpha) ** num_layers
    x = x_in
    for _ in range(1 if kept == 0 else math.ceil(math.log(_TOLERANCE) / math.log(kept))):
        x = run_steps([adj] * num_layers, torch.lerp(x, x_in, beta), x_in, alpha, sign=sign)
    return x


def _from_polynomial(coefficients: list[float], alpha: float, further: int) -> Response:
    keep, last = 1 - alpha, len(coefficients) - 1
    sources = [coefficients[power] / (alpha * keep**power) for power in range(last - 1, -1, -1)]
    start = round(coefficients[last] / keep**last, _DECIMALS)
    return Response(start, tuple(round(weight, _DECIMALS) for weight in sources), further)


def _check_fit(num_layers: int, further: int, beta: float, level: float, seed: int) -> None:
    for name, value in {"level": level, "beta": beta}.items():
        check_number(name, value)
    for name, value in {"num_layers": num_layers, "further": further, "seed": seed}.items():
        check_number(name, value, whole=True)
    if not 0 < level <= 1:
        raise ValueError(f"`level` must be in (0, 1], got {level}")
    if not 0 <= beta <= 1:
        raise ValueError(f"`beta` must be in [0, 1], got {beta}")
    if num_layers < 1:
        raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
    if further < 0:
        raise ValueError(f"`further` must be at least 0, got {further}")
