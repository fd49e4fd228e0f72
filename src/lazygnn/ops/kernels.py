"""The sparse product in Triton: a few lanes of a warp own a row and sum its neighbours in float32.

A lane loads 16 bytes, `UNIT` columns, of one neighbour after another, and the `LANES` lanes of a row cover its columns:
48 columns of bfloat16 take 6 lanes, a warp has 5 rows, and nothing is summed across lanes. Rows that share a warp
should be equally long, which is what `order` is for. Indices and values come in aligned fours, a trip ahead of the
neighbours they stand for; the last few, where they are no four, come one by one, and nothing is read beyond the end. A
row is summed in the order of its entries, save for the pieces of `SPLIT` entries that lie in it as a whole: other
programs sum these first. Nothing is added atomically, and the bits of a result do not depend on how many neighbours are
on their way at a time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import triton
import triton.language as tl

_WARP = tl.constexpr(32)
# words of 32 bits in 16 bytes; entries whose indices are loaded together
_FOUR = tl.constexpr(4)


class Kernel(Protocol):
    """What `triton.jit` makes of a function: launched on a grid, or called by another kernel."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Launches the kernel."""

    def __call__(self, *args: Any) -> Any:
        """Becomes a part of the kernel that calls it."""


def jit(function: Callable[..., Any], *, unspecialized: Sequence[str] = ()) -> Kernel:
    """`triton.jit`, typed; what the integers in `unspecialized` can be divided by makes no kernel of its own."""
    kernel: Kernel = triton.jit(function, do_not_specialize=unspecialized)
    return kernel


@partial(jit, unspecialized=("num_rows", "num_entries", "num_x", "source_stride", "past_stride", "out_stride"))
def lane_rows(
    order: tl.tensor,  # [R], the rows as programs take them
    rowptr: tl.tensor,  # [R + 1]
    col: tl.tensor,  # [E]
    value: tl.tensor,  # [E]
    x: tl.tensor,  # [S, LANES * UNIT]; where the matrix has more columns, the rows that follow are those of `halo`
    halo: tl.tensor,
    pieces: tl.tensor,  # [E // SPLIT, LANES * UNIT], or None where there are none
    source: tl.tensor,  # [R, SOURCE_COLUMNS] or None
    past: tl.tensor,  # [R, PAST_COLUMNS] or None
    out: tl.tensor,  # [R, LANES * UNIT]
    num_rows: tl.tensor,
    num_entries: tl.tensor,
    num_x: tl.tensor,
    source_stride: tl.tensor,
    past_stride: tl.tensor,
    out_stride: tl.tensor,
    keep: tl.tensor,
    source_weight: tl.tensor,
    past_weight: tl.tensor,
    X_STRIDE: tl.constexpr,
    HALO_STRIDE: tl.constexpr,
    SOURCE_COLUMNS: tl.constexpr,
    SOURCE_UNIT: tl.constexpr,
    PAST_COLUMNS: tl.constexpr,
    PAST_UNIT: tl.constexpr,
    UNIT: tl.constexpr,
    SPLIT: tl.constexpr,
    LANES: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """`out = keep matrix @ x + source_weight source + past_weight past`.

    The strides of `x`, `halo` and `out` count units of `UNIT` columns, which is how the compiler learns that rows are
    aligned. That of `source` counts `SOURCE_UNIT` columns, that of `past` `PAST_UNIT`: as many where they have
    the type of `x` and rows that can be read to the end of a unit, else one.
    """
    ROWS: tl.constexpr = _WARP // LANES
    HALVES: tl.constexpr = UNIT // _FOUR
    KIND: tl.constexpr = x.dtype.element_ty
    thread = tl.arange(0, _WARP)
    lane = thread % LANES
    index = tl.program_id(0) * ROWS + thread // LANES
    inside = (thread < ROWS * LANES) & (index < num_rows)
    row = tl.load(order + index, inside, 0)
    start = tl.load(rowptr + row, inside, 0)
    stop = tl.load(rowptr + row + 1, inside, 0)
    # rows times columns may be more than 32 bits can count
    row = row.to(tl.int64)

    # asked for ahead of the sums, which take longer than it does to arrive
    if source is not None:
        given = _own(source, row, source_stride, lane, inside, SOURCE_COLUMNS, SOURCE_UNIT, UNIT)
    if past is not None:
        before = _own(past, row, past_stride, lane, inside, PAST_COLUMNS, PAST_UNIT, UNIT)

    table = (x, halo, num_x, X_STRIDE, HALO_STRIDE)
    if pieces is None:
        gap = None
    else:
        # a long row goes on behind its whole pieces
        first = start // SPLIT + (start % SPLIT != 0).to(start.dtype)
        number = tl.maximum(stop // SPLIT - first, 0)
        gap = (first * SPLIT, number * SPLIT)
    sums = _sum_entries(start, stop, gap, col, value, num_entries, table, lane, UNROLL)
    if pieces is not None:
        sums = _add_pieces(sums, pieces, first, number, lane, UNIT, LANES)

    results: tl.tuple = ()
    for h in tl.static_range(HALVES):
        rest = tl.zeros([_WARP, _FOUR], tl.float32)
        if source is not None:
            rest += source_weight * _halves(given, KIND)[h]
        if past is not None:
            rest += past_weight * _halves(before, KIND)[h]
        results += (keep * sums[h] + rest,)
    result = results[0] if HALVES == 1 else tl.reshape(tl.join(results[0], results[1]), [_WARP, UNIT])
    column = lane[:, None] * UNIT + tl.arange(0, UNIT)[None, :]
    tl.store(out + (row * out_stride * UNIT)[:, None] + column, result, inside[:, None])


@partial(jit, unspecialized=("num_x",))
def piece_sums(
    whole: tl.tensor,  # the pieces that lie in one row, and others behind them
    num_whole: tl.tensor,  # []
    col: tl.tensor,
    value: tl.tensor,
    x: tl.tensor,
    halo: tl.tensor,
    pieces: tl.tensor,  # [E // SPLIT, COLUMNS]; rows of pieces that are not whole are left as they are
    num_x: tl.tensor,
    X_STRIDE: tl.constexpr,
    HALO_STRIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    SPLIT: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    WIDTH: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """`pieces[p]` is the sum of `value x[col]` over the entries `p SPLIT` to `(p + 1) SPLIT`, by all lanes together."""
    column = tl.arange(0, WIDTH)[None, :]
    table = (x, halo, num_x, X_STRIDE, HALO_STRIDE)
    for i in range(tl.program_id(0), tl.load(num_whole), tl.num_programs(0)):
        piece = tl.load(whole + i).to(tl.int64)
        sums = tl.zeros([NEIGHBOURS, WIDTH], tl.float32)
        for offset in range(0, SPLIT, NEIGHBOURS * UNROLL):
            # all indices, then all rows, then the arithmetic, so that much is on its way at a time
            places: tl.tuple = ()
            weights: tl.tuple = ()
            gathered: tl.tuple = ()
            for u in tl.static_range(UNROLL):
                entry = piece * SPLIT + (offset + u * NEIGHBOURS) + tl.arange(0, NEIGHBOURS)
                places += (tl.load(col + entry),)
                weights += (tl.load(value + entry).to(tl.float32),)
            for u in tl.static_range(UNROLL):
                neighbour = _find(table, places[u], UNIT)[:, None] + column
                gathered += (tl.load(neighbour, column < COLUMNS, 0).to(tl.float32),)
            for u in tl.static_range(UNROLL):
                sums = tl.fma(gathered[u], weights[u][:, None], sums)
        tl.store(pieces + piece * COLUMNS + column, tl.sum(sums, 0)[None, :], column < COLUMNS)


@jit
def _sum_entries(
    start: tl.tensor,  # [32]
    stop: tl.tensor,  # [32]
    gap: tl.tuple,  # the first entry to be left out and the number of them, both multiples of four, [32]; or None
    col: tl.tensor,
    value: tl.tensor,
    num_entries: tl.tensor,
    table: tl.tuple,
    lane: tl.tensor,  # [32]
    UNROLL: tl.constexpr,
) -> tl.tuple:
    """The sum of `value x[col]` over the entries `start` to `stop` of every lane, a tuple of halves [32, 4].

    Entries are counted from the four that `start` lies in, without those that are left out. Where the number of all
    entries is no multiple of four, the rows that have the last of them add these one by one.
    """
    KIND: tl.constexpr = table[0].dtype.element_ty
    HALVES: tl.constexpr = 32 // KIND.primitive_bitwidth
    base, fours = start // _FOUR * _FOUR, num_entries // _FOUR * _FOUR
    begin, end, more = start - base, tl.minimum(stop, fours) - base, stop - fours
    beyond = tl.max(more, 0) > 0
    if gap is not None:
        gap = (gap[0] - base, gap[1])
        end -= gap[1]
    word = lane[:, None] * _FOUR + tl.arange(0, _FOUR)[None, :]
    sums = (tl.zeros([_WARP, _FOUR], tl.float32),) * HALVES
    places = _load_fours(col, base, 0, end, gap, UNROLL)
    weights = _load_fours(value, base, 0, end, gap, UNROLL)
    for offset in range(0, tl.max(end, 0), UNROLL):
        here, factors = places, weights
        places = _load_fours(col, base, offset + UNROLL, end, gap, UNROLL)
        weights = _load_fours(value, base, offset + UNROLL, end, gap, UNROLL)
        gathered: tl.tuple = ()
        for u in tl.static_range(UNROLL):
            live = (offset + u >= begin) & (offset + u < end)
            neighbour = _find(table, here[u], _FOUR * HALVES).to(tl.pointer_type(tl.int32), bitcast=True)
            gathered += (tl.load(neighbour[:, None] + word, live[:, None], 0),)
        for u in tl.static_range(UNROLL):
            live = (offset + u >= begin) & (offset + u < end)
            sums = _add_neighbour(sums, gathered[u], factors[u], live, KIND)
    if beyond:
        for u in tl.static_range(_FOUR - 1):
            live = (end + u >= begin) & (u < more)
            place = tl.load(col + fours + u, fours + u < num_entries, 0)
            factor = tl.load(value + fours + u, fours + u < num_entries, 0)
            neighbour = _find(table, place, _FOUR * HALVES).to(tl.pointer_type(tl.int32), bitcast=True)
            sums = _add_neighbour(sums, tl.load(neighbour + word, live[:, None], 0), factor, live, KIND)
    return sums


@jit
def _add_neighbour(
    sums: tl.tuple, neighbour: tl.tensor, factor: tl.tensor, live: tl.tensor, kind: tl.constexpr
) -> tl.tuple:
    """Adds the words of a neighbour, [32, 4], times the factor, [32] or of all lanes, where a lane is `live`."""
    factor = tl.where(live, factor.to(tl.float32), 0.0)
    part = _halves(neighbour, kind)
    added: tl.tuple = ()
    for h in tl.static_range(len(sums)):
        added += (tl.fma(part[h], factor[:, None], sums[h]),)
    return added


@jit
def _load_fours(
    entries: tl.tensor,
    base: tl.tensor,
    offset: tl.tensor,
    end: tl.tensor,
    gap: tl.tuple,
    UNROLL: tl.constexpr,
) -> tl.tuple:
    """`UNROLL` entries of every lane from `offset` on, each [32]; a four that begins before `end` is read whole."""
    loaded: tl.tuple = ()
    four = tl.arange(0, _FOUR)[None, :]
    for j in tl.static_range(UNROLL // _FOUR):
        at = base + (offset + j * _FOUR)
        if gap is not None:
            at += tl.where(gap[0] <= offset + j * _FOUR, gap[1], 0)
        entry = tl.multiple_of(at, 4)[:, None] + four
        begins = offset + j * _FOUR < end[:, None]
        even, odd = tl.split(tl.reshape(tl.load(entries + entry, begins, 0), [_WARP, 2, 2]))
        a, c = tl.split(even)
        b, d = tl.split(odd)
        loaded += (a, b, c, d)
    return loaded


@jit
def _find(table: tl.tuple, place: tl.tensor, UNIT: tl.constexpr) -> tl.tensor:
    """Where the rows `place` begin; `table` is `x`, the halo or None, the number of rows of `x`, and both strides."""
    x, halo, num_x, x_stride, halo_stride = table
    place = place.to(tl.int64)
    row = x + place * (x_stride * UNIT)
    if halo is not None:
        below = halo + (place - num_x) * (halo_stride * UNIT)
        # the compiler does not see that both are aligned
        row = tl.multiple_of(tl.where(place < num_x, row, below), 16)
    return row


@jit
def _add_pieces(
    sums: tl.tuple,
    pieces: tl.tensor,
    first: tl.tensor,  # [32]
    number: tl.tensor,  # [32]
    lane: tl.tensor,  # [32]
    UNIT: tl.constexpr,
    LANES: tl.constexpr,
) -> tl.tuple:
    """Adds `number` pieces from the `first` on, a few at a time."""
    column = lane[:, None] * UNIT + tl.arange(0, UNIT)[None, :]
    for p in range(0, tl.max(number, 0), _FOUR):
        found: tl.tuple = ()
        for u in tl.static_range(_FOUR):
            at = (first + (p + u)).to(tl.int64) * (LANES * UNIT)
            found += (tl.load(pieces + at[:, None] + column, (p + u < number)[:, None], 0),)
        part = _halves((found[0] + found[1]) + (found[2] + found[3]), tl.float32)
        added: tl.tuple = ()
        for h in tl.static_range(UNIT // _FOUR):
            added += (sums[h] + part[h],)
        sums = added
    return sums


@jit
def _own(
    rows: tl.tensor,
    row: tl.tensor,  # [32]
    stride: tl.tensor,
    lane: tl.tensor,  # [32]
    inside: tl.tensor,  # [32]
    COLUMNS: tl.constexpr,
    OWN_UNIT: tl.constexpr,
    UNIT: tl.constexpr,
) -> tl.tensor:
    """The columns of every lane in `rows`, not yet converted: as words [32, 4] where it can be, else as [32, UNIT]."""
    if OWN_UNIT == UNIT:
        word = lane[:, None] * _FOUR + tl.arange(0, _FOUR)[None, :]
        at = (row * stride * _FOUR)[:, None] + word
        return tl.load(rows.to(tl.pointer_type(tl.int32), bitcast=True) + at, inside[:, None], 0)
    else:  # noqa: RET505
        column = lane[:, None] * UNIT + tl.arange(0, UNIT)[None, :]
        at = (row * stride)[:, None] + column
        return tl.load(rows + at, inside[:, None] & (column < COLUMNS), 0)


@jit
def _halves(loaded: tl.tensor, kind: tl.constexpr) -> tl.tuple:
    """Columns in float32, [32, 4]: all of them, or the even and the odd ones.

    `loaded` are numbers, four or eight of them, or words that hold one or two numbers of the type `kind`.
    """
    if loaded.dtype == tl.int32:
        if kind == tl.float32:
            halves: tl.tuple = (loaded.to(tl.float32, bitcast=True),)
        elif kind == tl.bfloat16:
            # the upper half of a float32
            halves = ((loaded << 16).to(tl.float32, bitcast=True), (loaded & -65536).to(tl.float32, bitcast=True))
        else:
            low, high = loaded.to(tl.int16), (loaded >> 16).to(tl.int16)
            halves = (low.to(kind, bitcast=True).to(tl.float32), high.to(kind, bitcast=True).to(tl.float32))
    elif loaded.shape[1] == _FOUR:
        halves = (loaded.to(tl.float32),)
    else:
        halves = tl.split(tl.reshape(loaded.to(tl.float32), [_WARP, _FOUR, 2]))
    return halves
