"""The products of the library, and copies of rows, in plain PyTorch: the definition of correct.

Rows of 16-bit numbers are multiplied and summed in the type of the matrix and rounded once, under autocast too, which
would round the matrix. On a CPU a matrix of 16-bit numbers is widened to float32 first: MKL has no product for it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lazygnn.ops.csr import Csr


def spmm(matrix: Csr, x: Tensor) -> Tensor:
    """`matrix @ x` for a dense `x`."""
    matrix, wide = _same_type(matrix, x)
    with torch.autocast(x.device.type, enabled=False):
        out = torch.sparse.mm(matrix.tensor, wide, "sum") if _rows_in_parallel(x) else torch.mm(matrix.tensor, wide)
    return out.to(x.dtype)


def step(
    adj: Csr,
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    share: float = 1.0,
    past: Tensor | None = None,
) -> Tensor:
    """`(1 - alpha) adj @ x + alpha lerp(past, source, share)` on the rows of `adj`.

    The rows of `x` below them keep their value. Without `past` a `share` below one is one of nothing else.
    """
    rows = adj.num_rows
    adj, wide = _same_type(adj, x)
    source = source[:rows].to(wide.dtype)
    if share != 1:
        source = share * source if past is None else torch.lerp(past[:rows].to(wide.dtype), source, share)
    with torch.autocast(x.device.type, enabled=False):
        if _rows_in_parallel(x):
            out = torch.sparse.mm(adj.tensor, wide, "sum").mul_(1 - alpha).add_(source, alpha=alpha)
        else:
            out = torch.addmm(source, adj.tensor, wide, beta=alpha, alpha=1 - alpha)
    out = out.to(x.dtype)
    return out if rows == len(x) else torch.cat((out, x[rows:]))


def run_steps(
    adjs: Sequence[Csr],
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    shares: Sequence[float] | None = None,
    past: Tensor | None = None,
) -> Tensor:
    """A step for each matrix, with its share of the source if it has one; the rows that the last one reaches."""
    for adj, share in zip(adjs, (1.0,) * len(adjs) if shares is None else shares, strict=True):
        x = step(adj, x, source, alpha, share=share, past=past)
    return x[: adjs[-1].num_rows] if adjs else x


def room(num_rows: int, like: Tensor) -> Tensor:
    """Memory for so many rows of a table."""
    return torch.empty((num_rows, *like.shape[1:]), dtype=like.dtype, device=like.device)


def gather(table: Tensor, rows: Tensor, out: Tensor, count: Tensor | None = None) -> None:  # noqa: ARG001
    """`out = table[rows]`, for an `out` from `room`; beyond the first `count` rows there may be anything."""
    torch.index_select(table, 0, rows, out=out)


def scatter(table: Tensor, rows: Tensor, new: Tensor) -> None:
    """`table[rows] = new`, for rows that are all different."""
    table.index_copy_(0, rows, new)


def _same_type(matrix: Csr, x: Tensor) -> tuple[Csr, Tensor]:
    dtype = torch.promote_types(matrix.value.dtype, x.dtype)
    if x.device.type == "cpu":
        # MKL multiplies float32 and float64 only; widening everywhere keeps CPUs with and without MKL alike
        dtype = torch.promote_types(dtype, torch.float32)
    return matrix if matrix.value.dtype == dtype else matrix.to(dtype), x.to(dtype)


def _rows_in_parallel(x: Tensor) -> bool:
    # without MKL (ARM, for one) torch's CSR `addmm` runs on a single core; the reducing product uses all of them.
    return x.device.type == "cpu" and not bool(torch.backends.mkl.is_available())
