"""Products with a matrix whose rows are distributed over ranks: rows around the parts come from their owners.

The functions have the names and arguments of those of `ops.reference`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lazygnn import ops

if TYPE_CHECKING:
    from lazygnn.distributed.matrix import ShardedMatrix


def spmm(matrix: "ShardedMatrix", x: Tensor, halo: Tensor | None = None) -> Tensor:
    """Returns the rows of `matrix @ x` that belong to this rank."""
    assert halo is None, "the halo of a distributed product comes from the other ranks"
    around, out = matrix.halo_rows(x), torch.empty_like(x)
    for part in matrix.parts:
        out[part.rows] = ops.spmm(part.adj, x[part.rows], around[part.slots])
    return out


def step(
    adj: "ShardedMatrix",
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    weight: float = 1.0,
    previous: Tensor | None = None,
    sign: int = 1,
) -> Tensor:
    """Returns `sign (1 - alpha) adj @ x + alpha lerp(previous, source, weight)` on the rows of this rank."""
    around, out = adj.halo_rows(x), torch.empty_like(x)
    for part in adj.parts:
        rows = part.rows
        out[rows] = ops.run_steps(
            [part.adj],
            x[rows],
            source[rows],
            alpha,
            weights=[weight],
            previous=None if previous is None else previous[rows],
            sign=sign,
            halo=around[part.slots],
        )
    return out


def run_steps(
    adjs: Sequence["ShardedMatrix"],
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    weights: Sequence[float] | None = None,
    previous: Tensor | None = None,
    sign: int = 1,
    halo: Tensor | None = None,
) -> Tensor:
    """Takes one step per matrix, each with an exchange of rows."""
    assert halo is None, "the halo of a distributed product comes from the other ranks"
    for adj, weight in zip(adjs, (1.0,) * len(adjs) if weights is None else weights, strict=True):
        x = step(adj, x, source, alpha, weight=weight, previous=previous, sign=sign)
    return x


def norm(matrix: "ShardedMatrix", x: Tensor) -> Tensor:
    """Returns the Frobenius norm of the rows of all ranks."""
    own = torch.linalg.vector_norm(x).double().square()
    return matrix.ranks.sum(own).sqrt()


def total(matrix: "ShardedMatrix", x: Tensor) -> Tensor:
    """Returns the sum over all ranks."""
    return matrix.ranks.sum(x.clone())


def own_rows(matrix: "ShardedMatrix", x: Tensor) -> Tensor:
    """Returns the rows of this rank."""
    return x[matrix.first_row : matrix.first_row + matrix.num_rows]
