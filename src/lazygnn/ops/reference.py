"""Defines the correct results of products and row copies in plain PyTorch.

Rows of 16-bit numbers are multiplied and summed in the type of the matrix and rounded once. Autocast is disabled, since
it would round the matrix. On a CPU a 16-bit matrix is converted to float32 first, since MKL has no product for it.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lazygnn.ops.csr import Csr

# squares of the entries of a billion numbers with this norm are normal in float32
_SMALLEST_NORM = 1e-12


def spmm(matrix: Csr, x: Tensor, halo: Tensor | None = None) -> Tensor:
    """Returns `matrix @ x` for a dense `x`; with a `halo`, its rows follow those of `x`."""
    x = x if halo is None else torch.cat((x, halo))
    matrix, wide = _in_common_type(matrix, x)
    with torch.autocast(x.device.type, enabled=False):
        out = torch.sparse.mm(matrix.tensor, wide, "sum") if _rows_in_parallel(x) else torch.mm(matrix.tensor, wide)
    return out.to(x.dtype)


def step(
    adj: Csr,
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    weight: float = 1.0,
    previous: Tensor | None = None,
    sign: int = 1,
) -> Tensor:
    """Returns `sign (1 - alpha) adj @ x + alpha lerp(previous, source, weight)` on the rows of `adj`.

    Further rows of `x` keep their value. A missing `previous` counts as zero.
    """
    rows = adj.num_rows
    adj, wide = _in_common_type(adj, x)
    source, owned = source[:rows].to(wide.dtype), weight != 1
    if owned:
        source = weight * source if previous is None else torch.lerp(previous[:rows].to(wide.dtype), source, weight)
    with torch.autocast(x.device.type, enabled=False):
        if _rows_in_parallel(x):
            out = torch.sparse.mm(adj.tensor, wide, "sum").mul_(sign * (1 - alpha)).add_(source, alpha=alpha)
        else:
            add = Tensor.addmm_ if owned else torch.addmm
            out = add(source, adj.tensor, wide, beta=alpha, alpha=sign * (1 - alpha))
    out = out.to(x.dtype)
    return out if rows == len(x) else torch.cat((out, x[rows:]))


def run_steps(
    adjs: Sequence[Csr],
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    weights: Sequence[float] | None = None,
    previous: Tensor | None = None,
    sign: int = 1,
    halo: Tensor | None = None,
) -> Tensor:
    """Takes one step per matrix, each with its weight of the source, and returns the rows of the last matrix.

    The rows of a `halo` follow those of `x` and keep their value.
    """
    x = x if halo is None else torch.cat((x, halo))
    for adj, weight in zip(adjs, (1.0,) * len(adjs) if weights is None else weights, strict=True):
        x = step(adj, x, source, alpha, weight=weight, previous=previous, sign=sign)
    return x[: adjs[-1].num_rows] if adjs else x


def norm(matrix: Csr, x: Tensor) -> Tensor:  # noqa: ARG001
    """Returns the Frobenius norm of `x`."""
    found: Tensor = torch.linalg.vector_norm(x)
    # a sum of squares leaves the range of float32 long before the numbers do; float64 makes a copy
    return found if _SMALLEST_NORM < float(found) < math.inf else torch.linalg.vector_norm(x, dtype=torch.float64)


def total(matrix: Csr, x: Tensor) -> Tensor:  # noqa: ARG001
    """Returns `x`: a single process holds all rows."""
    return x


def own_rows(matrix: Csr, x: Tensor) -> Tensor:  # noqa: ARG001
    """Returns `x`: a single process holds all rows."""
    return x


def allocate_rows(num_rows: int, like: Tensor) -> Tensor:
    """Returns uninitialized memory for `num_rows` rows of a table."""
    return torch.empty((num_rows, *like.shape[1:]), dtype=like.dtype, device=like.device)


def gather(table: Tensor, rows: Tensor, out: Tensor, count: Tensor | None = None) -> None:  # noqa: ARG001
    """Computes `out = table[rows]` for an `out` from `allocate_rows`; rows after the first `count` are unspecified."""
    torch.index_select(table, 0, rows, out=out)


def scatter(table: Tensor, rows: Tensor, new: Tensor) -> None:
    """Computes `table[rows] = new` for distinct rows."""
    table.index_copy_(0, rows, new)


def _in_common_type(matrix: Csr, x: Tensor) -> tuple[Csr, Tensor]:
    dtype = torch.promote_types(matrix.value.dtype, x.dtype)
    if x.device.type == "cpu":
        # MKL multiplies float32 and float64 only. Always converting rounds alike with and without it.
        dtype = torch.promote_types(dtype, torch.float32)
    return matrix.to(dtype), x.to(dtype)


def _rows_in_parallel(x: Tensor) -> bool:
    """Returns whether to use torch's reducing product, which runs on all cores.

    Without MKL, as on ARM, torch's CSR `addmm` runs on a single core.
    """
    return x.device.type == "cpu" and not bool(torch.backends.mkl.is_available())
