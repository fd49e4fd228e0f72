"""The sparse product in Triton: many neighbours of a row at a time, summed in float32.

A tile is `ROWS x NEIGHBOURS x LANES` threads, and each thread loads 16 bytes, `UNIT` columns, of one neighbour of one
row. Columns beyond `LANES * UNIT` come in further chunks, so an entry's index and value are loaded once for all
columns and no lane idles at 48 of them; `UNROLL` tiles are on their way at a time. One program sums its rows whatever
their length, save for the pieces of `SPLIT` entries that lie in one row as a whole: other programs sum these first.
Nothing is added atomically: the same matrix and the same tile give the same bits.
"""

from collections.abc import Callable
from typing import Any, Protocol

import triton
import triton.language as tl


class Kernel(Protocol):
    """What `triton.jit` makes of a function: launched on a grid, or called by another kernel."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Launches the kernel."""

    def __call__(self, *args: Any) -> Any:
        """Becomes a part of the kernel that calls it."""


def jit(function: Callable[..., Any]) -> Kernel:
    """`triton.jit`, typed."""
    kernel: Kernel = triton.jit(function)
    return kernel


@jit
def row_sums(
    rowptr: tl.tensor,  # [R + 1]
    col: tl.tensor,  # [E]
    value: tl.tensor,  # [E]
    x: tl.tensor,  # [S, COLUMNS]; where the matrix has more columns, the rows that follow are those of `halo`
    halo: tl.tensor,
    pieces: tl.tensor,  # [E // SPLIT, COLUMNS], or None where there are none
    source: tl.tensor,  # [R, SOURCE_COLUMNS] or None
    previous: tl.tensor,  # [R, SOURCE_COLUMNS] or None
    out: tl.tensor,  # [R, COLUMNS]
    num_rows: tl.tensor,
    num_x: tl.tensor,
    x_stride: tl.tensor,
    halo_stride: tl.tensor,
    source_stride: tl.tensor,
    previous_stride: tl.tensor,
    out_stride: tl.tensor,
    keep: tl.tensor,
    alpha: tl.tensor,
    momentum: tl.tensor,
    COLUMNS: tl.constexpr,
    SOURCE_COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    SPLIT: tl.constexpr,
    DEGREE: tl.constexpr,  # noqa: ARG001
    ROWS: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    LANES: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """`out = keep matrix @ x + alpha source + momentum (x - previous)`.

    The strides of `x`, `halo` and `out` count units of `UNIT` columns, which is how the compiler learns that rows are
    aligned. `DEGREE`, a mean, only tells matrices apart that want different tiles.
    """
    WIDTH: tl.constexpr = LANES * UNIT
    CHUNKS: tl.constexpr = (COLUMNS + WIDTH - 1) // WIDTH
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, WIDTH)
    inside = row < num_rows
    start = tl.load(rowptr + row, inside, 0)
    stop = tl.load(rowptr + row + 1, inside, 0)
    row = row.to(tl.int64)[:, None]

    # asked for ahead of the sums, which take longer than it does to arrive
    rest: tl.tuple = ()
    for i in tl.static_range(CHUNKS):
        term = tl.zeros([ROWS, WIDTH], tl.float32)
        mask = inside[:, None] & (channel + i * WIDTH < SOURCE_COLUMNS)[None, :]
        at = (channel + i * WIDTH)[None, :]
        if source is not None:
            term += alpha * tl.load(source + row * source_stride + at, mask, 0).to(tl.float32)
        if previous is not None:
            now = tl.load(x + row * x_stride * UNIT + at, mask, 0).to(tl.float32)
            then = tl.load(previous + row * previous_stride + at, mask, 0).to(tl.float32)
            term += momentum * (now - then)
        rest += (term,)

    table = (x, halo, num_x, x_stride, halo_stride)
    sums = (tl.zeros([ROWS, NEIGHBOURS, WIDTH], tl.float32),) * CHUNKS
    if pieces is None:
        sums = _add_entries(sums, start, stop, col, value, table, COLUMNS, UNIT, NEIGHBOURS, LANES, UNROLL)
    else:
        first, last = (start + SPLIT - 1) // SPLIT, stop // SPLIT
        is_long = first < last
        # what a long row has before its first whole piece, then what it has after its last one
        for tail in range(1 + tl.max(is_long.to(tl.int32), 0)):
            begin = tl.where(tail == 0, start, tl.where(is_long, last * SPLIT, stop))
            end = tl.where((tail == 0) & is_long, first * SPLIT, stop)
            sums = _add_entries(sums, begin, end, col, value, table, COLUMNS, UNIT, NEIGHBOURS, LANES, UNROLL)
        table = (pieces, None, 0, COLUMNS, 0)
        sums = _add_entries(sums, first, last, None, None, table, COLUMNS, 1, NEIGHBOURS, WIDTH, 1)

    for i in tl.static_range(CHUNKS):
        at = (channel + i * WIDTH)[None, :]
        result = keep * tl.sum(sums[i], 1) + rest[i]
        tl.store(out + row * out_stride * UNIT + at, result, inside[:, None] & (at < COLUMNS))


@jit
def piece_sums(
    whole: tl.tensor,  # [E // SPLIT], whether a piece lies in one row
    col: tl.tensor,
    value: tl.tensor,
    x: tl.tensor,
    halo: tl.tensor,
    pieces: tl.tensor,  # [E // SPLIT, COLUMNS]; rows of pieces that are not whole are left as they are
    num_x: tl.tensor,
    x_stride: tl.tensor,
    halo_stride: tl.tensor,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    SPLIT: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    LANES: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """`pieces[p]` is the sum of `value x[col]` over the entries `p SPLIT` to `(p + 1) SPLIT`."""
    WIDTH: tl.constexpr = LANES * UNIT
    CHUNKS: tl.constexpr = (COLUMNS + WIDTH - 1) // WIDTH
    piece = tl.program_id(0).to(tl.int64)
    if tl.load(whole + piece) != 0:
        channel = tl.arange(0, WIDTH)
        begin = piece * SPLIT + tl.arange(0, 1)
        table = (x, halo, num_x, x_stride, halo_stride)
        sums = (tl.zeros([1, NEIGHBOURS, WIDTH], tl.float32),) * CHUNKS
        sums = _add_entries(sums, begin, begin + SPLIT, col, value, table, COLUMNS, UNIT, NEIGHBOURS, LANES, UNROLL)
        for i in tl.static_range(CHUNKS):
            at = (channel + i * WIDTH)[None, :]
            tl.store(pieces + piece * COLUMNS + at, tl.sum(sums[i], 1), at < COLUMNS)


@jit
def _add_entries(
    sums: tl.tuple,  # [ROWS, NEIGHBOURS, LANES * UNIT] for every chunk of columns
    begin: tl.tensor,  # [ROWS]
    end: tl.tensor,  # [ROWS]
    col: tl.tensor,
    value: tl.tensor,
    table: tl.tuple,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    LANES: tl.constexpr,
    UNROLL: tl.constexpr,
) -> tl.tuple:
    """Adds `value x[col]` for the entries `begin` to `end` of every row; without `col`, these rows of `x` themselves.

    `table` is `x`, the halo that follows below it or None, the rows of `x`, and the strides of both.
    """
    WIDTH: tl.constexpr = LANES * UNIT
    CHUNKS: tl.constexpr = (COLUMNS + WIDTH - 1) // WIDTH
    x, halo, num_x, x_stride, halo_stride = table
    channel = tl.arange(0, WIDTH)[None, None, :]
    lane = begin[:, None] + tl.arange(0, NEIGHBOURS)[None, :]
    for offset in range(0, tl.max(end - begin, 0), NEIGHBOURS * UNROLL):
        # all indices, then all rows, then the arithmetic, so that much is on its way at a time
        live: tl.tuple = ()
        rows: tl.tuple = ()
        weights: tl.tuple = ()
        gathered: tl.tuple = ()
        for u in tl.static_range(UNROLL):
            entry = lane + (offset + u * NEIGHBOURS)
            live += (entry < end[:, None],)
            place = entry
            if col is not None:
                place = tl.load(col + entry, live[u], 0)
                weights += (tl.load(value + entry, live[u], 0).to(tl.float32),)
            # rows times columns may be more than 32 bits can count
            row = x + place.to(tl.int64) * x_stride * UNIT
            if halo is not None:
                below = halo + (place - num_x).to(tl.int64) * halo_stride * UNIT
                # the compiler does not see that both are aligned
                row = tl.multiple_of(tl.where(place < num_x, row, below), (16, 16))
            rows += (row,)
        for u in tl.static_range(UNROLL):
            for i in tl.static_range(CHUNKS):
                mask = live[u][:, :, None]
                if COLUMNS % WIDTH != 0:
                    mask = mask & (channel + i * WIDTH < COLUMNS)
                gathered += (tl.load(rows[u][:, :, None] + (channel + i * WIDTH), mask, 0).to(tl.float32),)
        for u in tl.static_range(UNROLL):
            added: tl.tuple = ()
            for i in tl.static_range(CHUNKS):
                neighbour = gathered[u * CHUNKS + i]
                if col is None:
                    added += (sums[i] + neighbour,)
                else:
                    added += (tl.fma(neighbour, weights[u][:, :, None], sums[i]),)
            sums = added
    return sums
