"""The fixed point `x = (1 - alpha) A x + alpha x_in` to a tolerance, in bounded memory.

With a sign of -1 it is that of the high-pass, `x = -(1 - alpha) A x + alpha x_in`, which has the same bounds.

Exact inference uses it: no history is read, and the number of products is known before the first one. All eigenvalues
of `(1 - alpha) A` are in [-(1 - alpha), 1 - alpha], and `x_in` is at most `|x_in|` away from the solution, so after
`k` products the error is below `(1 - alpha)^k |x_in|` (power steps) or `|x_in| / T_k(1 / (1 - alpha))` (Chebyshev).
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.errors import ConfigError, check_number
from lazygnn.ops import Adjacency

Solver = Literal["chebyshev", "power"]

# products between two measurements of the error, each of which takes about as long as half a product
_CHECK_EVERY = 4
# of a solution that ends within a reasonable time; a weight below 1e-8 needs more
_MOST_PRODUCTS = 100_000


@dataclass(frozen=True, eq=False)
class Solution:
    """The solution, the products it took, and a bound on its error relative to `x_in`.

    The bound includes the rounding error `eps / alpha`, with `eps` of the type of `x_in`. It is above the tolerance if
    the type is not precise enough.
    """

    x: Tensor
    num_products: int
    error: float


@torch.no_grad()
def solve(
    adj: Adjacency,
    x_in: Tensor,
    alpha: float,
    *,
    tolerance: float = 1e-4,
    solver: Solver = "chebyshev",
    sign: int = 1,
    start: Tensor | None = None,
) -> Solution:
    """Solves `x = sign (1 - alpha) A x + alpha x_in` until `|x - x_star| <= tolerance |x_in|`, in the Frobenius norm.

    For inference: five tensors of the size of `x_in` exist at a time, and no gradient flows.

    Args:
        adj: Normalized and symmetric; for another matrix of norm at most one use `solver="power"`.
        x_in: Input, [N, C].
        alpha: Weight of `x_in`, in (0, 1].
        tolerance: Bound on the relative error, in (0, 1).
        solver: `chebyshev` needs about the square root of the products that `power` needs.
        sign: 1 for the low-pass, -1 for the high-pass.
        start: Where to start, [N, C]; a value near the solution saves products. By default it is `x_in`.

    Examples:
        >>> import torch
        >>> from lazygnn import diffuse, solve
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> found = solve(graph.adj, graph.x, alpha=0.1, tolerance=1e-4)
        >>> exact = diffuse([graph.adj] * 300, graph.x, graph.x, alpha=0.1)
        >>> torch.allclose(found.x, exact, atol=1e-3)
        True
    """
    check_alpha(alpha)
    check_sign(sign)
    most = num_products(alpha, tolerance, solver)
    rho, rounding = 1 - alpha, torch.finfo(x_in.dtype).eps / alpha
    scale = ops.norm(adj, x_in)
    # the solution for an input of zero is zero
    x = before = x_in if start is None or scale == 0 else start
    omega, k = 2.0, 0
    while k < most:
        image = ops.step(adj, x, x_in, alpha, sign=sign)
        if k % _CHECK_EVERY == 0:
            # |x - x_star| <= |image - x| / alpha, so a smooth input or a good start may stop early
            error = ops.norm(adj, image - x) / alpha
            if error <= tolerance * scale:
                return Solution(x, k + 1, error / max(scale, 1e-300) + rounding)
            if k == 0 and x is not x_in and math.isfinite(error):
                # the start may be farther away than `x_in`, or nearer
                most = num_products(alpha, tolerance * scale / error, solver)
        if solver == "chebyshev" and k > 0:
            omega = 1 / (1 - rho**2 * omega / 4)
            torch.lerp(before, image, omega, out=image)
        before, x = x, image
        k += 1
    return Solution(x, most, tolerance + rounding)


def num_products(alpha: float, tolerance: float, solver: Solver = "chebyshev") -> int:
    """Returns the number of products after which the error is below the tolerance for every input."""
    if not 0 < tolerance < 1:
        raise ValueError(f"`tolerance` must be in (0, 1), got {tolerance}")
    if solver not in ("chebyshev", "power"):
        raise ValueError(f"`solver` must be `chebyshev` or `power`, got `{solver}`")
    rho = 1 - alpha
    if rho == 0:
        return 1
    if solver == "chebyshev":
        return math.ceil(math.acosh(1 / tolerance) / math.acosh(1 / rho))
    return math.ceil(math.log(tolerance) / math.log(rho))


def check_alpha(alpha: float) -> None:
    """Refuses a weight without a fixed point."""
    check_number("alpha", alpha)
    if not 0 < alpha <= 1:
        raise ValueError(f"`alpha` must be in (0, 1], got {alpha}")


def check_products(name: str, alpha: float, tolerance: float) -> None:
    """Refuses a weight, by the name of its option, whose fixed point takes too many products."""
    if (products := num_products(alpha, tolerance)) > _MOST_PRODUCTS:
        raise ConfigError(f"`{name}` is {alpha}, with which a solution takes {products:,} products; give a larger one")


def check_sign(sign: int) -> None:
    """Refuses what is neither the low-pass nor the high-pass."""
    if sign not in (1, -1):
        raise ValueError(f"`sign` must be 1 for the low-pass or -1 for the high-pass, got {sign}")
