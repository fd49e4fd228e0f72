"""Products with a matrix whose rows are distributed over ranks: rows around the parts come from their owners.

The functions have the names and arguments of those of `ops.reference`. Columns do not depend on each other, so that a
wide product of a large graph exchanges a few columns at a time: the rows around the parts of a rank, and those that it
sends, may be more than its own.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.ops import reference

if TYPE_CHECKING:
    from lazygnn.distributed.matrix import ShardedMatrix

# of the rows of all nodes, in the columns of an exchange
_BYTES_AT_ONCE = 1 << 27


def spmm(matrix: "ShardedMatrix", x: Tensor, halo: Tensor | None = None) -> Tensor:
    """Returns the rows of `matrix @ x` that belong to this rank."""
    assert halo is None, "the halo of a distributed product comes from the other ranks"
    out = torch.empty_like(x)
    for columns in _exchanges(matrix, x):
        block = x[:, columns].contiguous()
        around = matrix.halo_rows(block)
        for part in matrix.parts:
            out[part.rows, columns] = ops.spmm(part.adj, block[part.rows], around.index_select(0, part.slots))
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
    out = torch.empty_like(x)
    for columns in _exchanges(adj, x):
        block = x[:, columns].contiguous()
        around = adj.halo_rows(block)
        for part in adj.parts:
            rows = part.rows
            out[rows, columns] = ops.run_steps(
                [part.adj],
                block[rows],
                source[rows, columns].contiguous(),
                alpha,
                weights=[weight],
                previous=None if previous is None else previous[rows, columns].contiguous(),
                sign=sign,
                halo=around.index_select(0, part.slots),
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
    own = reference.norm(matrix, x).double().square()
    return matrix.ranks.sum(own).sqrt()


def total(matrix: "ShardedMatrix", x: Tensor) -> Tensor:
    """Returns the sum over all ranks."""
    return matrix.ranks.sum(x.clone())


def own_rows(matrix: "ShardedMatrix", x: Tensor) -> Tensor:
    """Returns the rows of this rank."""
    return x[matrix.first_row : matrix.first_row + matrix.num_rows]


def _exchanges(matrix: "ShardedMatrix", x: Tensor) -> Iterator[slice]:
    """Yields the columns of every exchange; all ranks have the same number of them, whatever their rows are."""
    channels = x.shape[1]
    number = max(1, -(-matrix.num_cols * channels * x.element_size() // _BYTES_AT_ONCE))
    width = max(1, -(-channels // number))
    for start in range(0, max(channels, 1), width):
        yield slice(start, start + width)
