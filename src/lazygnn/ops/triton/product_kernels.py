"""Sparse products in Triton: a few lanes of a warp own a row and sum its neighbors in float32.

A lane loads 16 bytes, `UNIT` columns, of one neighbor after another, and the `LANES` lanes of a row cover its columns.
For example, 48 columns of bfloat16 take 6 lanes, so that a warp processes 5 rows. Nothing is summed across lanes. Rows
that share a warp should be equally long, which `order` ensures. Indices and values are loaded in aligned groups of
four, one iteration ahead of their neighbors. The last entries that do not fill a group are loaded one by one, so that
nothing is read past the end.

A row is summed in the order of its entries, except for the pieces of `SPLIT` entries within the row: other programs sum
these first (see `plans`). No sum is atomic, and the bits of a result do not depend on `UNROLL`, the number of neighbors
loaded at a time.
"""

from functools import partial

import triton.language as tl

from lazygnn.ops.triton.jit import jit

_WARP = tl.constexpr(32)
# 32-bit words in 16 bytes; also the number of entries in a group
_FOUR = tl.constexpr(4)


@partial(jit, unspecialized=("num_rows", "num_entries", "num_x", "source_stride", "previous_stride", "out_stride"))
def lane_rows(
    order: tl.tensor,  # [R], rows in the order of processing
    rowptr: tl.tensor,  # [R + 1]
    col: tl.tensor,  # [E]
    value: tl.tensor,  # [E]
    x: tl.tensor,  # [S, LANES * UNIT]
    halo: tl.tensor,  # [num_cols - S, LANES * UNIT] or None, the rows after those of `x`
    pieces: tl.tensor,  # [E // SPLIT, LANES * UNIT] or None
    source: tl.tensor,  # [R, SOURCE_COLUMNS] or None
    previous: tl.tensor,  # [R, PREVIOUS_COLUMNS] or None
    out: tl.tensor,  # [R, LANES * UNIT]
    num_rows: tl.tensor,
    num_entries: tl.tensor,
    num_x: tl.tensor,
    source_stride: tl.tensor,
    previous_stride: tl.tensor,
    out_stride: tl.tensor,
    keep: tl.tensor,
    source_weight: tl.tensor,
    previous_weight: tl.tensor,
    X_STRIDE: tl.constexpr,
    HALO_STRIDE: tl.constexpr,
    SOURCE_COLUMNS: tl.constexpr,
    SOURCE_UNIT: tl.constexpr,
    PREVIOUS_COLUMNS: tl.constexpr,
    PREVIOUS_UNIT: tl.constexpr,
    UNIT: tl.constexpr,
    SPLIT: tl.constexpr,
    LANES: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """Computes `out = keep matrix @ x + source_weight source + previous_weight previous`.

    The strides of `x`, `halo` and `out` are in units of `UNIT` columns, so that the compiler infers that rows are
    aligned. The strides of `source` and `previous` are in units of `SOURCE_UNIT` and `PREVIOUS_UNIT` columns. These
    are `UNIT` if the rows are aligned and have the type of `x`, otherwise 1.
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
    # The product of row and stride may exceed 32 bits.
    row = row.to(tl.int64)

    # Loaded before the sums, which hide the latency.
    if source is not None:
        given = _load_own(source, row, source_stride, lane, inside, SOURCE_COLUMNS, SOURCE_UNIT, UNIT)
    if previous is not None:
        before = _load_own(previous, row, previous_stride, lane, inside, PREVIOUS_COLUMNS, PREVIOUS_UNIT, UNIT)

    table = (x, halo, num_x, X_STRIDE, HALO_STRIDE)
    if pieces is None:
        gap = None
    else:
        # A long row skips its whole pieces, which are added below.
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
        if previous is not None:
            rest += previous_weight * _halves(before, KIND)[h]
        results += (keep * sums[h] + rest,)
    result = results[0] if HALVES == 1 else tl.reshape(tl.join(results[0], results[1]), [_WARP, UNIT])
    column = lane[:, None] * UNIT + tl.arange(0, UNIT)[None, :]
    tl.store(out + (row * out_stride * UNIT)[:, None] + column, result, inside[:, None])


@partial(jit, unspecialized=("num_x",))
def piece_sums(
    whole: tl.tensor,  # [E // SPLIT], pieces within a single row, then all others
    num_whole: tl.tensor,  # [], number of pieces within a single row
    col: tl.tensor,
    value: tl.tensor,
    x: tl.tensor,
    halo: tl.tensor,
    pieces: tl.tensor,  # [E // SPLIT, COLUMNS]; rows of other pieces are not written
    num_x: tl.tensor,
    X_STRIDE: tl.constexpr,
    HALO_STRIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    SPLIT: tl.constexpr,
    NEIGHBORS: tl.constexpr,
    WIDTH: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """Sums `value x[col]` over the entries `p SPLIT` to `(p + 1) SPLIT` into `pieces[p]`, with all lanes together."""
    column = tl.arange(0, WIDTH)[None, :]
    table = (x, halo, num_x, X_STRIDE, HALO_STRIDE)
    for i in range(tl.program_id(0), tl.load(num_whole), tl.num_programs(0)):
        piece = tl.load(whole + i).to(tl.int64)
        sums = tl.zeros([NEIGHBORS, WIDTH], tl.float32)
        for offset in range(0, SPLIT, NEIGHBORS * UNROLL):
            # All indices, then all rows, then the arithmetic: this keeps many loads in flight.
            places: tl.tuple = ()
            weights: tl.tuple = ()
            gathered: tl.tuple = ()
            for u in tl.static_range(UNROLL):
                entry = piece * SPLIT + (offset + u * NEIGHBORS) + tl.arange(0, NEIGHBORS)
                places += (tl.load(col + entry),)
                weights += (tl.load(value + entry).to(tl.float32),)
            for u in tl.static_range(UNROLL):
                neighbor = _find(table, places[u], UNIT)[:, None] + column
                gathered += (tl.load(neighbor, column < COLUMNS, 0).to(tl.float32),)
            for u in tl.static_range(UNROLL):
                sums = tl.fma(gathered[u], weights[u][:, None], sums)
        tl.store(pieces + piece * COLUMNS + column, tl.sum(sums, 0)[None, :], column < COLUMNS)


@jit
def _sum_entries(
    start: tl.tensor,  # [32]
    stop: tl.tensor,  # [32]
    gap: tl.tuple,  # first skipped entry and number of skipped entries, [32] each, multiples of four; or None
    col: tl.tensor,
    value: tl.tensor,
    num_entries: tl.tensor,
    table: tl.tuple,
    lane: tl.tensor,  # [32]
    UNROLL: tl.constexpr,
) -> tl.tuple:
    """Returns the sum of `value x[col]` over the entries `start` to `stop` of every lane, a tuple of halves [32, 4].

    Offsets start at the group of four that contains `start` and do not count skipped entries. If the number of all
    entries is not a multiple of four, the last entries are added one by one.
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
            neighbor = _find(table, here[u], _FOUR * HALVES).to(tl.pointer_type(tl.int32), bitcast=True)
            gathered += (tl.load(neighbor[:, None] + word, live[:, None], 0),)
        for u in tl.static_range(UNROLL):
            live = (offset + u >= begin) & (offset + u < end)
            sums = _add_neighbor(sums, gathered[u], factors[u], live, KIND)
    if beyond:
        for u in tl.static_range(_FOUR - 1):
            live = (end + u >= begin) & (u < more)
            place = tl.load(col + fours + u, fours + u < num_entries, 0)
            factor = tl.load(value + fours + u, fours + u < num_entries, 0)
            neighbor = _find(table, place, _FOUR * HALVES).to(tl.pointer_type(tl.int32), bitcast=True)
            sums = _add_neighbor(sums, tl.load(neighbor + word, live[:, None], 0), factor, live, KIND)
    return sums


@jit
def _add_neighbor(
    sums: tl.tuple, neighbor: tl.tensor, factor: tl.tensor, live: tl.tensor, kind: tl.constexpr
) -> tl.tuple:
    """Adds the words of a neighbor, [32, 4], times the factor, [32] or a scalar, in lanes that are `live`."""
    factor = tl.where(live, factor.to(tl.float32), 0.0)
    part = _halves(neighbor, kind)
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
    """Loads `UNROLL` entries per lane from `offset`, [32] each; a group of four that starts before `end` is read."""
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
    """Returns pointers to the rows `place`; `table` holds `x`, the halo or None, the rows of `x`, and both strides."""
    x, halo, num_x, x_stride, halo_stride = table
    place = place.to(tl.int64)
    row = x + place * (x_stride * UNIT)
    if halo is not None:
        below = halo + (place - num_x) * (halo_stride * UNIT)
        # The compiler does not infer that both pointers are aligned.
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
    """Adds `number` pieces starting with `first`, four at a time."""
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
def _load_own(
    rows: tl.tensor,
    row: tl.tensor,  # [32]
    stride: tl.tensor,
    lane: tl.tensor,  # [32]
    inside: tl.tensor,  # [32]
    COLUMNS: tl.constexpr,
    ROWS_UNIT: tl.constexpr,
    UNIT: tl.constexpr,
) -> tl.tensor:
    """Loads the columns of every lane, not yet converted: as words [32, 4] if `rows` are aligned, else [32, UNIT]."""
    if ROWS_UNIT == UNIT:
        word = lane[:, None] * _FOUR + tl.arange(0, _FOUR)[None, :]
        at = (row * stride * _FOUR)[:, None] + word
        return tl.load(rows.to(tl.pointer_type(tl.int32), bitcast=True) + at, inside[:, None], 0)
    else:  # noqa: RET505
        column = lane[:, None] * UNIT + tl.arange(0, UNIT)[None, :]
        at = (row * stride)[:, None] + column
        return tl.load(rows + at, inside[:, None] & (column < COLUMNS), 0)


@jit
def _halves(loaded: tl.tensor, kind: tl.constexpr) -> tl.tuple:
    """Converts columns to float32, [32, 4]: all columns, or the even and the odd ones.

    `loaded` holds four or eight numbers per lane, or words with one or two numbers of the type `kind` each.
    """
    if loaded.dtype == tl.int32:
        if kind == tl.float32:
            halves: tl.tuple = (loaded.to(tl.float32, bitcast=True),)
        elif kind == tl.bfloat16:
            # A bfloat16 is the upper half of a float32.
            halves = ((loaded << 16).to(tl.float32, bitcast=True), (loaded & -65536).to(tl.float32, bitcast=True))
        else:
            low, high = loaded.to(tl.int16), (loaded >> 16).to(tl.int16)
            halves = (low.to(kind, bitcast=True).to(tl.float32), high.to(kind, bitcast=True).to(tl.float32))
    elif loaded.shape[1] == _FOUR:
        halves = (loaded.to(tl.float32),)
    else:
        halves = tl.split(tl.reshape(loaded.to(tl.float32), [_WARP, _FOUR, 2]))
    return halves
