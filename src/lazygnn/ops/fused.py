"""The products of `reference` for an accelerator: residual and row prefix in one pass.

Results have rows of a multiple of 16 bytes: 47 columns are a view of 48. What comes in otherwise is copied into such
rows first, so a chain of steps pads once, and a long one pads its source too. The first product of a kind compiles,
and the first one with a pattern works out in which order its rows are taken; neither must happen while a CUDA graph is
captured.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from lazygnn.ops.csr import Csr, index_dtype
from lazygnn.ops.kernels import lane_rows, piece_sums

# rows are taken by length within so many of them: far enough to find equals, near enough to share neighbours
WINDOW = 4096
_BYTES = 16
_WARP = 32
# lanes of a row at most, each with 16 bytes of it
_MAX_LANES = 32
# steps of a chain whose source is worth the copy
_PADDED_FROM = 3
# sums of pieces take turns where there are more: as many warps as a large device has room for
_MAX_PROGRAMS = 4096
# sums are fused where the kernel says so; the default for the rest is about to change
_OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}


def spmm(matrix: Csr, x: Tensor) -> Tensor:
    """`matrix @ x` for a dense `x`."""
    out = empty_rows(matrix.num_rows, x)
    _multiply(matrix, aligned(x), out)
    return out


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

    Rows of `x` below `adj` keep their value.
    """
    out = empty_rows(max(adj.num_rows, len(x)), x)
    _multiply(adj, aligned(x), out, source, alpha, share=share, past=past)
    if adj.num_rows < len(x):
        out[adj.num_rows :] = x[adj.num_rows :]
    return out


def run_steps(
    adjs: Sequence[Csr],
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    shares: Sequence[float] | None = None,
    past: Tensor | None = None,
) -> Tensor:
    """A step for each matrix, with its share of the source if it has one; the rows that the last one reaches.

    Where all matrices reach the same rows, the rows below are read where they lie and never copied.
    """
    if not adjs:
        return x
    rows = adjs[-1].num_rows
    shares = (1.0,) * len(adjs) if shares is None else shares
    if any(adj.num_rows != rows for adj in adjs):
        for adj, share in zip(adjs, shares, strict=True):
            x = step(adj, x, source, alpha, share=share, past=past)
        return x[:rows]
    x, halo = aligned(x), None
    below = x[rows:] if rows < len(x) else None
    if len(adjs) >= _PADDED_FROM:
        source, past = aligned(_dense(source)), None if past is None else aligned(_dense(past))
    for adj, share in zip(adjs, shares, strict=True):
        out = empty_rows(rows, x)
        _multiply(adj, x, out, source, alpha, halo=halo, share=share, past=past)
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
    share: float = 1.0,
    past: Tensor | None = None,
) -> None:
    """Writes the rows of `matrix` to `out`; where `x` ends, its rows go on in `halo`."""
    _check(matrix, x, halo, source=source, past=past)
    # what has no weight need not be read
    past = None if share == 1 else past
    unit, vectors = _unit(x), triton.cdiv(x.shape[1], _unit(x))
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
                share=share,
                past=None if past is None else past[:, columns],
            )
        return
    if matrix.num_rows == 0 or x.shape[1] == 0:
        return
    plan = _plan(matrix)
    source, past = (None if rows is None else _dense(rows) for rows in (source, past))
    source_unit, past_unit = _common_unit(x, source), _common_unit(x, past)
    gather = {
        "col": matrix.col.contiguous(),
        "value": matrix.value.contiguous(),
        "x": x,
        "halo": halo,
        "num_x": len(x),
        "X_STRIDE": x.stride(0) // unit,
        "HALO_STRIDE": 0 if halo is None else halo.stride(0) // unit,
        "UNIT": unit,
        "SPLIT": _split(matrix),
    }
    with torch.cuda.device_of(x):
        pieces = _pieces(plan, vectors, gather)
        lane_rows[(triton.cdiv(matrix.num_rows, _WARP // vectors),)](
            order=plan.order,
            rowptr=matrix.rowptr.contiguous(),
            pieces=pieces,
            source=source,
            past=past,
            out=out,
            num_rows=matrix.num_rows,
            num_entries=len(matrix.col),
            source_stride=0 if source is None else source.stride(0) // source_unit,
            past_stride=0 if past is None else past.stride(0) // past_unit,
            out_stride=out.stride(0) // unit,
            keep=1.0 - alpha,
            source_weight=float(alpha * share),
            past_weight=float(alpha * (1 - share)),
            SOURCE_COLUMNS=x.shape[1] if source_unit == 1 else vectors * unit,
            SOURCE_UNIT=source_unit,
            PAST_COLUMNS=x.shape[1] if past_unit == 1 else vectors * unit,
            PAST_UNIT=past_unit,
            LANES=vectors,
            UNROLL=_unroll(matrix),
            **gather,
            **_OPTIONS,
        )


@dataclass(frozen=True)
class _Plan:
    """How a pattern is walked."""

    order: Tensor  # [R], rows by length within windows, the longest first
    whole: Tensor | None  # [E // SPLIT], pieces that lie in one row, then the others; None where there are none
    num_whole: Tensor | None  # [], how many lie in one row


def _plan(matrix: Csr) -> _Plan:
    """Worked out once for a pattern, without a word from the device."""
    if "plan" not in matrix.derived:
        matrix.derived["plan"] = _make_plan(matrix.rowptr, len(matrix.col), _split(matrix))
    plan: _Plan = matrix.derived["plan"]
    return plan


def _make_plan(rowptr: Tensor, num_entries: int, split: int) -> _Plan:
    start, stop, num_rows = rowptr[:-1], rowptr[1:], len(rowptr) - 1
    # what is left of a row without its whole pieces is less than two of them
    length = stop - start - (stop // split + -start // split).clamp_(min=0) * split
    window = torch.arange(num_rows, dtype=rowptr.dtype, device=rowptr.device) // WINDOW
    order = torch.argsort((window + 1) * (2 * split) - length, stable=True).to(index_dtype(num_rows))
    if num_entries < split:
        return _Plan(order, None, None)
    bounds = torch.arange(num_entries // split + 1, dtype=rowptr.dtype, device=rowptr.device) * split
    # no row begins after the first entry of the piece and before its end
    whole = torch.searchsorted(rowptr, bounds[:-1], right=True) == torch.searchsorted(rowptr, bounds[1:])
    pieces = torch.argsort((~whole).to(torch.int8), stable=True).to(index_dtype(len(whole)))
    return _Plan(order, pieces, whole.sum())


def _pieces(plan: _Plan, vectors: int, gather: dict[str, Any]) -> Tensor | None:
    """The sums of all pieces that lie in one row as a whole."""
    if plan.whole is None:
        return None
    columns, lanes = vectors * gather["UNIT"], max(triton.next_power_of_2(vectors), 2)
    neighbours = min(2 * _WARP // lanes, gather["SPLIT"])
    pieces = torch.empty(len(plan.whole), columns, device=plan.whole.device)
    piece_sums[(min(len(plan.whole), _MAX_PROGRAMS),)](
        whole=plan.whole,
        num_whole=plan.num_whole,
        pieces=pieces,
        COLUMNS=columns,
        NEIGHBOURS=neighbours,
        WIDTH=lanes * gather["UNIT"],
        UNROLL=min(4, gather["SPLIT"] // neighbours),
        **gather,
        **_OPTIONS,
    )
    return pieces


def _split(matrix: Csr) -> int:
    """Entries of a piece, a power of two.

    A program walks less than two pieces of a row alone, which must not take longer than all the rest together.
    """
    return 256 if len(matrix.col) >= 1 << 25 else 64


def _unroll(matrix: Csr) -> int:
    """Neighbours of a row on their way at a time; makes no difference to the bits."""
    return 8 if len(matrix.col) >= 16 * matrix.num_rows else 4


def _unit(x: Tensor) -> int:
    """Columns in 16 bytes."""
    return _BYTES // x.element_size()


def _common_unit(x: Tensor, rows: Tensor | None) -> int:
    """Columns in 16 bytes where `rows` can be read as `x` is, else one."""
    return _unit(x) if rows is None or (rows.dtype == x.dtype and is_aligned(rows)) else 1


def padded_width(x: Tensor) -> int:
    """The columns of `x`, rounded up to a multiple of 16 bytes."""
    padded: int = triton.cdiv(x.shape[1], _unit(x)) * _unit(x)
    return padded


def empty_rows(num_rows: int, like: Tensor) -> Tensor:
    """Rows as wide as those of `like`, of the same type, a multiple of 16 bytes apart."""
    return torch.empty(num_rows, padded_width(like), dtype=like.dtype, device=like.device)[:, : like.shape[1]]


def aligned(x: Tensor) -> Tensor:
    """`x` itself, or a copy of it in such rows."""
    return x if is_aligned(x) else empty_rows(len(x), x).copy_(x)


def is_aligned(x: Tensor) -> bool:
    """Whether rows lie at multiples of 16 bytes and can be read to the end of the last 16."""
    end = x.storage_offset() + (len(x) - 1) * x.stride(0) + padded_width(x)
    aligned = (x.data_ptr() | x.stride(0) * x.element_size()) % _BYTES == 0
    return x.stride(1) == 1 and aligned and end * x.element_size() <= x.untyped_storage().nbytes()


def _check(matrix: Csr, x: Tensor, halo: Tensor | None, **own: Tensor | None) -> None:
    # a kernel reads on where a tensor ends
    if len(matrix.value) != len(matrix.col):
        raise ValueError(f"the matrix has {len(matrix.value)} values in {len(matrix.col)} places")
    num_rows = len(x) + (0 if halo is None else len(halo))
    if num_rows != matrix.num_cols:
        raise ValueError(f"`x` has {num_rows} rows for the {matrix.num_cols} columns of the matrix")
    for name, rows in own.items():
        if rows is not None and (len(rows) < matrix.num_rows or rows.shape[1:] != x.shape[1:]):
            raise ValueError(
                f"`{name}` has shape {tuple(rows.shape)}; the step needs ({matrix.num_rows}, {x.shape[1]}) or more rows"
            )


def _dense(rows: Tensor) -> Tensor:
    return rows if rows.stride(1) == 1 else rows.contiguous()
