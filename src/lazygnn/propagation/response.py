"""How a pass answers a change of its input: with the plain steps, or with steps fitted to the graph.

A pass of `L` products turns a change `D` of the input into `P(A) D` with a polynomial `P` of degree `L`; an input that
stands still is answered, over many passes, by `h(A)`. Plain steps are one choice of `P`: it follows a change that is
smooth over the graph and lets too much of a rough one through, and what dropout adds anew in every pass is rough. The
fitted response is the polynomial nearest to `h` on random inputs of the graph at hand; see docs/concepts/staleness.md.
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from lazygnn.errors import GraphError, check_number, wrong_type
from lazygnn.fixed_point import check_alpha
from lazygnn.ops import Adjacency, Csr, run_steps, spmm

PROBES = 8
# what a fit is held at: less lets less noise through, more lags less; one degree more leaves room for more
LEVEL, LEVEL_FURTHER = 0.8, 0.85
# relative error of what a standing input is answered by, in its slowest mode
_TOLERANCE = 1e-3
# decimals that are kept, so that a device does not change what a run does
_DECIMALS = 3


@dataclass(frozen=True)
class Response:
    """Weights of a change of the input: in the start value, and in the source of every step.

    With `D = x_in - x_in_then` and a share `mix` of the input in every start, a pass is
    `x <- lerp(stored, x_in_then, mix) + start D`, then `x <- (1 - alpha) A x + alpha (x_in_then + sources[l] D)`.
    An input that does not change is answered alike by all of them. What was fitted says for which `alpha` and `mix`,
    and how many of its steps are `further` ones; no other pass has the answers it was fitted to.
    """

    start: float
    sources: tuple[float, ...]
    alpha: float | None = field(default=None, compare=False)
    mix: float | None = field(default=None, compare=False)
    further: int | None = field(default=None, compare=False)

    @staticmethod
    def plain(num_layers: int) -> "Response":
        """The change as a whole, everywhere: plain steps with the fresh input."""
        return Response(1.0, (1.0,) * num_layers)

    @property
    def is_plain(self) -> bool:
        """Whether every weight is one."""
        return self == Response.plain(len(self.sources))

    def polynomial(self, alpha: float) -> list[float]:
        """The coefficients of `P`, constant term first."""
        keep, last = 1 - alpha, len(self.sources)
        steps = [alpha * weight * keep ** (last - 1 - step) for step, weight in enumerate(self.sources)]
        return [*reversed(steps), self.start * keep**last]


@torch.no_grad()
def fit_response(
    adj: Adjacency,
    alpha: float,
    num_layers: int,
    *,
    further: int = 0,
    mix: float = 0.0,
    level: float | None = None,
    seed: int = 0,
) -> Response:
    """The response whose `P` is nearest to `h` in least squares over random inputs, with `P(1) = level`.

    The standing answer follows the smoothest input as a whole, `h(1) = 1`. To ask for less at this one point lets `P`
    come closer everywhere else; what is missed there arrives over the passes that follow.

    Args:
        adj: Normalised and symmetric.
        alpha: Weight of the input in a step.
        num_layers: Products of a pass up to what is stored.
        further: Products that follow and are not stored, such as a step on labelled rows.
        mix: Share of the input in the start of every pass.
        level: `P(1)`, in (0, 1]; `None` is 0.8, and 0.85 with `further` products.
        seed: Of the random inputs.
    """
    if not isinstance(adj, Csr):
        raise GraphError(wrong_type("adj", adj, "give the matrix of a graph, `graph.adj`"))
    check_alpha(alpha)
    level = level_for(further) if level is None else level
    for name, value in {"level": level, "mix": mix}.items():
        check_number(name, value)
    for name, value in {"num_layers": num_layers, "further": further, "seed": seed}.items():
        check_number(name, value, whole=True)
    if not 0 < level <= 1:
        raise ValueError(f"`level` must lie in (0, 1], got {level}")
    if not 0 <= mix <= 1:
        raise ValueError(f"`mix` must lie in [0, 1], got {mix}")
    if num_layers < 1:
        raise ValueError(f"`num_layers` must be at least 1, got {num_layers}")
    if further < 0:
        raise ValueError(f"`further` must be at least 0, got {further}")
    degree = num_layers + further
    # nothing is left of the history, or of the graph
    if 1 in (mix, alpha):
        return Response.plain(degree)
    generator = torch.Generator().manual_seed(seed)
    probe = torch.randn(adj.num_cols, PROBES, generator=generator).to(adj.device, adj.value.dtype)
    powers = [probe]
    for _ in range(degree):
        powers.append(spmm(adj, powers[-1]))
    standing = standing_answer(adj, probe, alpha, num_layers, mix)
    wanted = run_steps([adj] * further, standing, probe, alpha) - level * probe
    # P = level + (A - I) (b_0 + b_1 A + ...), so that P(1) = level whatever the b are
    basis = torch.stack([(after - before).flatten() for before, after in pairwise(powers)], dim=1).double()
    gram, target = (basis.T @ basis).cpu(), (basis.T @ wanted.flatten().double()).cpu()
    b = torch.linalg.lstsq(gram, target.unsqueeze(1)).solution.flatten().tolist()
    coefficients = [level, *[0.0] * degree]
    for power, weight in enumerate(b):
        coefficients[power] -= weight
        coefficients[power + 1] += weight
    return _from_polynomial(coefficients, alpha, mix, further)


def level_for(further: int) -> float:
    """The level of a fit that is not told one."""
    return LEVEL_FURTHER if further else LEVEL


def standing_answer(adj: Adjacency, x_in: Tensor, alpha: float, num_layers: int, mix: float) -> Tensor:
    """What passes come to if their input never changes, `h(A) x_in`: they are taken until nothing more happens.

    With a mix of 0 that is the fixed point of Eq. (1); any other shortens the reach. With 0.1 and two steps it is close
    to ten steps from the input, where exact methods stop.
    """
    kept = (1 - mix) * (1 - alpha) ** num_layers
    x = x_in
    for _ in range(1 if kept == 0 else math.ceil(math.log(_TOLERANCE) / math.log(kept))):
        x = run_steps([adj] * num_layers, torch.lerp(x, x_in, mix), x_in, alpha)
    return x


def _from_polynomial(coefficients: list[float], alpha: float, mix: float, further: int) -> Response:
    keep, last = 1 - alpha, len(coefficients) - 1
    sources = [coefficients[power] / (alpha * keep**power) for power in range(last - 1, -1, -1)]
    start = round(coefficients[last] / keep**last, _DECIMALS)
    return Response(start, tuple(round(weight, _DECIMALS) for weight in sources), alpha, mix, further)
