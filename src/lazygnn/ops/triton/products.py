"""The products of `lazygnn.ops.reference` as Triton kernels; a step is a single pass over the rows.

Results have rows that are a multiple of 16 bytes apart: 47 columns of float32 are a view of 48. Other inputs are copied
into such rows first. A chain of steps therefore pads `x` once, and a long chain pads its source as well. The first
product of a kind compiles, and the first product with a pattern computes its plan. Neither may happen while a CUDA
graph is captured.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from lazygnn.ops.csr import Csr
from lazygnn.ops.triton import plans
from lazygnn.ops.triton.alignment import aligned, columns_per_load, empty_rows, is_aligned, with_dense_rows
from lazygnn.ops.triton.product_kernels import lane_rows, piece_sums

_WARP = 32
# most lanes that share a row; each loads 16 bytes of it
_MAX_LANES = 32
# number of steps from which it pays to pad the source
_PADDED_FROM = 3
# most programs that sum pieces, about as many warps as run at a time on a large device
_MAX_PROGRAMS = 4096
# The kernels request fused multiply-adds explicitly. Triton's default for other sums is about to change.
_OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}


def spmm(matrix: Csr, x: Tensor, halo: Tensor | None = None) -> Tensor:
    """Returns `matrix @ x` for a dense `x`; with a `halo`, its rows follow those of `x`."""
    out = empty_rows(matrix.num_rows, x)
    _multiply(matrix, aligned(x), out, halo=None if halo is None else _aligned_halo(halo))
    return out


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

    Further rows of `x` keep their value.
    """
    out = empty_rows(max(adj.num_rows, len(x)), x)
    _multiply(adj, aligned(x), out, source, alpha, weight=weight, previous=previous, sign=sign)
    if adj.num_rows < len(x):
        out[adj.num_rows :] = x[adj.num_rows :]
    return out


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

    If all matrices have the same number of rows, the further rows of `x` are read in place and never copied. The same
    holds for the rows of a `halo`, if `x` has no further rows.
    """
    if not adjs:
        return x
    rows = adjs[-1].num_rows
    weights = (1.0,) * len(adjs) if weights is None else weights
    same_rows = all(adj.num_rows == rows for adj in adjs)
    if halo is not None and not (same_rows and len(x) == rows):
        x, halo = torch.cat((x, halo)), None
    if not same_rows:
        for adj, weight in zip(adjs, weights, strict=True):
            x = step(adj, x, source, alpha, weight=weight, previous=previous, sign=sign)
        return x[:rows]
    x, halo = aligned(x), None if halo is None else _aligned_halo(halo)
    below = x[rows:] if rows < len(x) else halo
    if len(adjs) >= _PADDED_FROM:
        source = aligned(with_dense_rows(source))
        previous = None if previous is None else aligned(with_dense_rows(previous))
    for adj, weight in zip(adjs, weights, strict=True):
        out = empty_rows(rows, x)
        _multiply(adj, x, out, source, alpha, halo=halo, weight=weight, previous=previous, sign=sign)
        x, halo = out, below
    return x


def _multiply(
    matrix: Csr,
    x: Tensor,
    out: Tensor,
    source: Tensor | None = None,
    alpha: float = 0.0,
    *,
    halo: Tensor | None = None,
    weight: float = 1.0,
    previous: Tensor | None = None,
    sign: int = 1,
) -> None:
    """Writes the rows of `matrix` to `out`; the columns after the rows of `x` refer to the rows of `halo`."""
    _check(matrix, x, halo, source=source, previous=previous)
    # The kernel need not read a `previous` of weight zero.
    previous = None if weight == 1 else previous
    unit = columns_per_load(x)
    vectors = triton.cdiv(x.shape[1], unit)
    if vectors > _MAX_LANES:
        width = triton.cdiv(vectors, triton.cdiv(vectors, _MAX_LANES)) * unit
        for first in range(0, x.shape[1], width):
            columns = slice(first, first + width)
            _multiply(
                matrix,
                x[:, columns],
                out[:, columns],
                None if source is None else source[:, columns],
                alpha,
                halo=None if halo is None else halo[:, columns],
                weight=weight,
                previous=None if previous is None else previous[:, columns],
                sign=sign,
            )
        return
    if matrix.num_rows == 0 or x.shape[1] == 0:
        return
    plan = plans.plan_of(matrix)
    source, previous = (None if rows is None else with_dense_rows(rows) for rows in (source, previous))
    source_unit, previous_unit = _unit_like(x, source), _unit_like(x, previous)
    gather = {
        "col": matrix.col.contiguous(),
        "value": matrix.value.contiguous(),
        "x": x,
        "halo": halo,
        "num_x": len(x),
        "X_STRIDE": x.stride(0) // unit,
        "HALO_STRIDE": 0 if halo is None else halo.stride(0) // unit,
        "UNIT": unit,
        "SPLIT": plans.piece_size(matrix),
    }
    with torch.cuda.device_of(x):
        pieces = _sum_pieces(plan, vectors, gather)
        lane_rows[(triton.cdiv(matrix.num_rows, _WARP // vectors),)](
            order=plan.order,
            rowptr=matrix.rowptr.contiguous(),
            pieces=pieces,
            source=source,
            previous=previous,
            out=out,
            num_rows=matrix.num_rows,
            num_entries=len(matrix.col),
            source_stride=0 if source is None else source.stride(0) // source_unit,
            previous_stride=0 if previous is None else previous.stride(0) // previous_unit,
            out_stride=out.stride(0) // unit,
            keep=sign * (1.0 - alpha),
            source_weight=float(alpha * weight),
            previous_weight=float(alpha * (1 - weight)),
            SOURCE_COLUMNS=x.shape[1] if source_unit == 1 else vectors * unit,
            SOURCE_UNIT=source_unit,
            PREVIOUS_COLUMNS=x.shape[1] if previous_unit == 1 else vectors * unit,
            PREVIOUS_UNIT=previous_unit,
            LANES=vectors,
            UNROLL=_unroll(matrix),
            **gather,
            **_OPTIONS,
        )


def _aligned_halo(halo: Tensor) -> Tensor:
    """Returns rows that start a multiple of 16 bytes apart; one row that stands for all of them stays one row."""
    if halo.stride(0) == 0 and len(halo) > 0:
        return aligned(halo[:1]).expand(len(halo), -1)
    return aligned(halo)


def _sum_pieces(plan: plans.Plan, vectors: int, gather: dict[str, Any]) -> Tensor | None:
    """Returns the sums of all pieces within a single row; the rows of other pieces are uninitialized."""
    if plan.whole is None:
        return None
    columns, lanes = vectors * gather["UNIT"], max(triton.next_power_of_2(vectors), 2)
    neighbors = min(2 * _WARP // lanes, gather["SPLIT"])
    pieces = torch.empty(len(plan.whole), columns, device=plan.whole.device)
    piece_sums[(min(len(plan.whole), _MAX_PROGRAMS),)](
        whole=plan.whole,
        num_whole=plan.num_whole,
        pieces=pieces,
        COLUMNS=columns,
        NEIGHBORS=neighbors,
        WIDTH=lanes * gather["UNIT"],
        UNROLL=min(4, gather["SPLIT"] // neighbors),
        **gather,
        **_OPTIONS,
    )
    return pieces


def _unroll(matrix: Csr) -> int:
    """Returns how many neighbors of a row are loaded at a time; the result has the same bits for every choice."""
    return 8 if len(matrix.col) >= 16 * matrix.num_rows else 4


def _unit_like(x: Tensor, rows: Tensor | None) -> int:
    """Returns the columns in 16 bytes if `rows` can be loaded like `x`, otherwise one."""
    return columns_per_load(x) if rows is None or (rows.dtype == x.dtype and is_aligned(rows)) else 1


def _check(matrix: Csr, x: Tensor, halo: Tensor | None, **operands: Tensor | None) -> None:
    # A kernel would read past the end of a tensor that is too short.
    if len(matrix.value) != len(matrix.col):
        raise ValueError(f"the matrix has {len(matrix.value)} values for {len(matrix.col)} column indices")
    num_rows = len(x) + (0 if halo is None else len(halo))
    if num_rows != matrix.num_cols:
        raise ValueError(f"`x` has {num_rows} rows, but the matrix has {matrix.num_cols} columns")
    for name, rows in operands.items():
        if rows is not None and (len(rows) < matrix.num_rows or rows.shape[1:] != x.shape[1:]):
            raise ValueError(
                f"`{name}` has shape {tuple(rows.shape)}; the step needs ({matrix.num_rows}, {x.shape[1]}) or more rows"
            )
