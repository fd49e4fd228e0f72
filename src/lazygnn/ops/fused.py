"""The products of `reference` for an accelerator: residual, heavy-ball term and row prefix in one pass.

Results have rows of a multiple of 16 bytes: 47 columns are a view of 48. What comes in otherwise is copied into such
rows first, so a chain of steps pads once. The tile is measured at the first product of a kind, which must not happen
while a CUDA graph is captured, and Triton keeps it on disk: a run that goes on on the same machine goes on alike.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor
from triton.testing import do_bench

from lazygnn.ops.csr import Csr
from lazygnn.ops.kernels import piece_sums, row_sums

# entries of a piece: a row of twice as many has at least one, and what is left of it is no longer than that
SPLIT = 512
_BYTES = 16
_WARP = 32
_MAX_CHUNKS = 4
_MAX_LANES = 32
# of 16 bytes, by one thread at a time
_MAX_LOADS = 16


def spmm(matrix: Csr, x: Tensor) -> Tensor:
    """`matrix @ x` for a dense `x`."""
    out = _empty(matrix.num_rows, x)
    _multiply(matrix, _aligned(x), out)
    return out


def step(
    adj: Csr, x: Tensor, source: Tensor, alpha: float, *, previous: Tensor | None = None, momentum: float = 0.0
) -> Tensor:
    """`(1 - alpha) adj @ x + alpha source + momentum (x - previous)`; rows of `x` below `adj` keep their value."""
    out = _empty(max(adj.num_rows, len(x)), x)
    _multiply(adj, _aligned(x), out, source, alpha, previous=previous, momentum=momentum)
    if adj.num_rows < len(x):
        out[adj.num_rows :] = x[adj.num_rows :]
    return out


def run_steps(
    adjs: Sequence[Csr], x: Tensor, sources: Iterable[Tensor], alpha: float, *, momentum: float = 0.0
) -> Tensor:
    """A step for each matrix and its source; the rows that the last one reaches.

    Where all matrices reach the same rows, the rows below are read where they lie and never copied.
    """
    if not adjs:
        return x
    rows, previous = adjs[-1].num_rows, None
    if any(adj.num_rows != rows for adj in adjs):
        for adj, source in zip(adjs, sources, strict=True):
            x, previous = step(adj, x, source, alpha, previous=previous, momentum=momentum), x
        return x[:rows]
    x, halo = _aligned(x), None
    below = x[rows:] if rows < len(x) else None
    for adj, source in zip(adjs, sources, strict=True):
        out = _empty(rows, x)
        _multiply(adj, x, out, source, alpha, halo=halo, previous=previous, momentum=momentum)
        # what is not needed must not be held
        x, previous, halo = out, x if momentum else None, below
    return x


def _multiply(
    matrix: Csr,
    x: Tensor,
    out: Tensor,
    source: Tensor | None = None,
    alpha: float = 0.0,
    *,
    halo: Tensor | None = None,
    previous: Tensor | None = None,
    momentum: float = 0.0,
) -> None:
    """Writes the rows of `matrix` to `out`; where `x` ends, its rows go on in `halo`."""
    _check(matrix, x, halo, source, previous)
    limit = _MAX_CHUNKS * _MAX_LANES * _unit(x)
    if x.shape[1] > limit:
        for first in range(0, x.shape[1], limit):
            columns = slice(first, first + limit)
            _multiply(
                matrix,
                x[:, columns],
                out[:, columns],
                None if source is None else source[:, columns],
                alpha,
                halo=None if halo is None else halo[:, columns],
                previous=None if previous is None else previous[:, columns],
                momentum=momentum,
            )
        return
    if matrix.num_rows == 0 or x.shape[1] == 0:
        return
    unit = _unit(x)
    source, previous = (None if rows is None else _dense(rows) for rows in (source, previous))
    gather = {
        "col": matrix.col,
        "value": matrix.value,
        "x": x,
        "halo": halo,
        "num_x": len(x),
        "x_stride": x.stride(0) // unit,
        "halo_stride": 0 if halo is None else halo.stride(0) // unit,
        "COLUMNS": _padded(x),
        "UNIT": unit,
        "SPLIT": SPLIT,
    }
    given = gather | {
        "rowptr": matrix.rowptr,
        "source": source,
        "previous": previous,
        "out": out,
        "num_rows": matrix.num_rows,
        "source_stride": 0 if source is None else source.stride(0),
        "previous_stride": 0 if previous is None else previous.stride(0),
        "out_stride": out.stride(0) // unit,
        "keep": 1.0 - alpha,
        "alpha": float(alpha),
        "momentum": float(momentum),
        "SOURCE_COLUMNS": x.shape[1],
        "DEGREE": triton.next_power_of_2(max(len(matrix.col) // matrix.num_rows, 1)),
        # sums are fused where the kernel says so; the default for the rest is about to change
        "enable_fp_fusion": False,
    }
    grid = partial(_grid, matrix.num_rows)
    with torch.cuda.device_of(x):
        pieces = _pieces(matrix, gather) if len(matrix.col) >= SPLIT else None
        if x.is_cuda:
            _tuned[grid](pieces=pieces, **given)
        else:
            # the interpreter has nothing to measure
            row_sums[grid](pieces=pieces, **given, **_suited(TILES, {}, **given)[0].kwargs)


def _pieces(matrix: Csr, gather: dict[str, Any]) -> Tensor:
    """The sums of all pieces that lie in one row as a whole."""
    whole = _whole(matrix)
    pieces = torch.empty(len(whole), gather["COLUMNS"], device=matrix.device)
    # as few lanes as the columns allow: the threads are needed for the neighbours
    vectors = gather["COLUMNS"] // gather["UNIT"]
    lanes = max(triton.next_power_of_2(triton.cdiv(vectors, _MAX_CHUNKS)), 2)
    tile = {"NEIGHBOURS": 4 * _WARP // lanes, "LANES": lanes, "UNROLL": 2}
    piece_sums[(len(whole),)](whole=whole, pieces=pieces, **gather, **tile, num_warps=4, enable_fp_fusion=False)
    return pieces


def _whole(matrix: Csr) -> Tensor:
    """Which pieces of the entries lie in one row, [E // SPLIT]; worked out once, without a word from the device."""
    if "_whole" not in vars(matrix):
        num_entries, rowptr = len(matrix.col), matrix.rowptr
        bounds = torch.arange(0, num_entries + 1, SPLIT, dtype=rowptr.dtype, device=rowptr.device)
        # no row begins after the first entry of the piece and before its end
        begun = torch.searchsorted(rowptr, bounds[:-1], right=True)
        vars(matrix)["_whole"] = (begun == torch.searchsorted(rowptr, bounds[1:])).to(torch.int8)
    whole: Tensor = vars(matrix)["_whole"]
    return whole


def _grid(num_rows: int, tile: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(num_rows, tile["ROWS"]),)


def _tiles() -> list[triton.Config]:
    return [
        triton.Config(
            {"ROWS": rows, "NEIGHBOURS": warps * _WARP // (rows * lanes), "LANES": lanes, "UNROLL": unroll},
            num_warps=warps,
        )
        for lanes in (2, 4, 8, 16, _MAX_LANES)
        for rows, unroll, warps in ((1, 2, 1), (1, 4, 1), (1, 8, 1), (2, 2, 2), (4, 2, 1))
        if rows * lanes <= warps * _WARP
    ]


def _suited(configs: list[triton.Config], _: dict[str, Any], **given: Any) -> list[triton.Config]:
    """The tiles worth measuring: few chunks, and not many more entries at a time than rows have."""
    vectors = given["COLUMNS"] // given["UNIT"]

    def chunks(tile: triton.Config) -> int:
        number: int = triton.cdiv(vectors, tile.kwargs["LANES"])
        return number

    def entries(tile: triton.Config) -> int:
        number: int = tile.kwargs["NEIGHBOURS"] * tile.kwargs["UNROLL"]
        return number

    fitting = [
        tile
        for tile in configs
        if chunks(tile) <= _MAX_CHUNKS
        and chunks(tile) * tile.kwargs["UNROLL"] <= _MAX_LOADS
        and tile.kwargs["LANES"] < max(2 * vectors, 4)
    ]
    most = max(2 * given["DEGREE"], min(map(entries, fitting)))
    return [tile for tile in fitting if entries(tile) <= most]


TILES = _tiles()
_tuned = triton.autotune(
    TILES,
    key=["COLUMNS", "DEGREE"],
    prune_configs_by={"early_config_prune": _suited},
    do_bench=partial(do_bench, warmup=5, rep=20),
    cache_results=True,
)(row_sums)


def _unit(x: Tensor) -> int:
    """Columns in 16 bytes."""
    return _BYTES // x.element_size()


def _padded(x: Tensor) -> int:
    """The columns of `x`, rounded up to a multiple of 16 bytes."""
    padded: int = triton.cdiv(x.shape[1], _unit(x)) * _unit(x)
    return padded


def _empty(num_rows: int, like: Tensor) -> Tensor:
    return torch.empty(num_rows, _padded(like), dtype=like.dtype, device=like.device)[:, : like.shape[1]]


def _aligned(x: Tensor) -> Tensor:
    """`x` itself where its rows lie at multiples of 16 bytes and can be read to the end of the last 16; else a copy."""
    end = x.storage_offset() + (len(x) - 1) * x.stride(0) + _padded(x)
    aligned = (x.data_ptr() | x.stride(0) * x.element_size()) % _BYTES == 0
    if x.stride(1) == 1 and aligned and end * x.element_size() <= x.untyped_storage().nbytes():
        return x
    return _empty(len(x), x).copy_(x)


def _check(matrix: Csr, x: Tensor, halo: Tensor | None, source: Tensor | None, previous: Tensor | None) -> None:
    # a kernel reads on where a tensor ends
    num_rows = len(x) + (0 if halo is None else len(halo))
    if num_rows != matrix.num_cols:
        raise ValueError(f"`x` has {num_rows} rows for the {matrix.num_cols} columns of the matrix")
    for name, rows in {"source": source, "previous": previous}.items():
        if rows is not None and (len(rows) < matrix.num_rows or rows.shape[1:] != x.shape[1:]):
            raise ValueError(
                f"`{name}` has shape {tuple(rows.shape)}; the step needs ({matrix.num_rows}, {x.shape[1]}) or more rows"
            )


def _dense(rows: Tensor) -> Tensor:
    return rows if rows.stride(1) == 1 else rows.contiguous()
