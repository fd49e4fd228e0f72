"""Batch norm, ReLU, GELU and dropout in Triton; batch norm takes two passes over the rows forward, two backward.

A program processes a block of `WIDTH` columns and some of its rows. A thread loads 16 bytes, `UNIT` columns, of a row
at a time. Each program sums over its rows in float32, and a second kernel combines these sums. No sum is atomic: the
same rows on the same device give the same bits. The mask of dropout is a function of the seed, the row and the
column. The backward pass of the norm recomputes it instead of reading the result.
"""

import triton.language as tl

from lazygnn.ops.triton.jit import jit

# the share of kept entries is a multiple of 1 / LEVELS
LEVELS = tl.constexpr(65536)
# the fewest rounds of Philox that pass the usual tests of randomness
_ROUNDS = tl.constexpr(7)


@jit
def partial_moments(
    x: tl.tensor,  # [N, COLUMNS]
    partial: tl.tensor,  # [2, P, COLUMNS], means minus the first row of `x`, and sums of squared deviations from them
    counts: tl.tensor,  # [P]
    num_rows: tl.tensor,
    num_programs: tl.tensor,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,  # noqa: ARG001
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """Computes the moments of the rows of each of P programs, which process `ROWS * UNROLL` rows in turn.

    Every slot of the tile sums differences from its first value. A mean far from zero therefore loses no precision.
    """
    program, first = _place(COLUMNS, WIDTH)
    column = first + tl.arange(0, WIDTH)
    slot = tl.arange(0, ROWS)
    begin = program * ROWS * UNROLL
    shift = _load(x, begin + slot, column, num_rows, COLUMNS, WIDTH)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    square = tl.zeros([ROWS, WIDTH], tl.float32)
    count = tl.zeros([ROWS], tl.int32)
    for start in range(begin, num_rows, num_programs * ROWS * UNROLL):
        # All rows, then the arithmetic: this keeps many loads in flight.
        loaded: tl.tuple = ()
        for u in tl.static_range(UNROLL):
            loaded += (_load(x, start + u * ROWS + slot, column, num_rows, COLUMNS, WIDTH),)
        for u in tl.static_range(UNROLL):
            inside = start + u * ROWS + slot < num_rows
            distance = tl.where(inside[:, None], loaded[u] - shift, 0.0)
            total += distance
            square = tl.fma(distance, distance, square)
            count += inside.to(tl.int32)

    number = count.to(tl.float32)[:, None]
    num_seen = tl.sum(number, 0)
    share = total / tl.maximum(number, 1.0)
    # Means relative to the first row are small, so that their sums round less.
    slot_mean = shift - _load_row(x, column, COLUMNS)[None, :] + share
    mean = tl.sum(number * slot_mean, 0) / num_seen
    apart = slot_mean - mean[None, :]
    moment = tl.sum(square - total * share + number * apart * apart, 0)
    at = program * COLUMNS + column
    tl.store(partial + at, mean, column < COLUMNS)
    tl.store(partial + num_programs * COLUMNS + at, moment, column < COLUMNS)
    tl.store(counts + program + tl.arange(0, 1), num_seen)


@jit
def combine_moments(
    x: tl.tensor,
    partial: tl.tensor,
    counts: tl.tensor,
    mean: tl.tensor,  # [COLUMNS]
    invstd: tl.tensor,  # [COLUMNS]
    running_mean: tl.tensor,  # [COLUMNS]
    running_var: tl.tensor,  # [COLUMNS]
    num_batches: tl.tensor,  # []
    num_rows: tl.tensor,
    num_programs: tl.tensor,
    eps: tl.tensor,
    momentum: tl.tensor,
    COLUMNS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Combines the moments of all rows and updates the running statistics, with the unbiased variance."""
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    inside = column < COLUMNS
    total = tl.zeros([PROGRAMS, WIDTH], tl.float32)
    for start in range(0, num_programs, PROGRAMS):
        program = start + tl.arange(0, PROGRAMS)
        number = tl.load(counts + program, program < num_programs, 0.0)
        total += number[:, None] * _load_partial(partial, program, column, num_programs, COLUMNS)
    center = tl.sum(total, 0) / num_rows
    moment = tl.zeros([PROGRAMS, WIDTH], tl.float32)
    for start in range(0, num_programs, PROGRAMS):
        program = start + tl.arange(0, PROGRAMS)
        number = tl.load(counts + program, program < num_programs, 0.0)
        apart = _load_partial(partial, program, column, num_programs, COLUMNS) - center[None, :]
        within = _load_partial(partial + num_programs * COLUMNS, program, column, num_programs, COLUMNS)
        moment += within + number[:, None] * apart * apart
    squares = tl.sum(moment, 0)
    center += _load_row(x, column, COLUMNS)
    tl.store(mean + column, center, inside)
    tl.store(invstd + column, 1.0 / tl.sqrt_rn(squares / num_rows + eps), inside)
    before = _load_row(running_mean, column, COLUMNS)
    tl.store(running_mean + column, before + momentum * (center - before), inside)
    before = _load_row(running_var, column, COLUMNS)
    tl.store(running_var + column, before + momentum * (squares / (num_rows - 1) - before), inside)
    if tl.program_id(0) == 0:
        tl.store(num_batches, tl.load(num_batches) + 1)


@jit
def normalize(
    x: tl.tensor,  # [N, COLUMNS]
    mean: tl.tensor,  # [COLUMNS]
    invstd: tl.tensor,  # [COLUMNS]
    weight: tl.tensor,  # [COLUMNS]
    bias: tl.tensor,  # [COLUMNS]
    seed: tl.tensor,  # [], or None if every entry is kept
    out: tl.tensor,  # [N, COLUMNS]
    num_rows: tl.tensor,
    KEPT: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes `out = dropout(relu((x - mean) invstd weight + bias))`."""
    row, first = _place_from_the_end(num_rows, COLUMNS, ROWS, WIDTH)
    column = first + tl.arange(0, WIDTH)
    norm = _load_norm(mean, invstd, weight, bias, column, COLUMNS)
    y = _normalized(_load(x, row, column, num_rows, COLUMNS, WIDTH), norm)
    active = _active(y, _load_seed(seed), row, first, KEPT, UNIT, ROWS, WIDTH)
    _store(out, tl.where(active, y * (LEVELS / KEPT), 0.0), row, column, num_rows, COLUMNS, WIDTH)


@jit
def partial_gradients(
    grad: tl.tensor,  # [N, COLUMNS]
    x: tl.tensor,  # [N, COLUMNS]
    mean: tl.tensor,
    invstd: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    seed: tl.tensor,
    partial: tl.tensor,  # [2, P, COLUMNS]
    num_rows: tl.tensor,
    num_programs: tl.tensor,
    KEPT: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    UNROLL: tl.constexpr,
) -> None:
    """Sums the gradient after dropout and ReLU, and this gradient times `x - mean`, per program."""
    program, first = _place(COLUMNS, WIDTH)
    column = first + tl.arange(0, WIDTH)
    slot = tl.arange(0, ROWS)
    norm = _load_norm(mean, invstd, weight, bias, column, COLUMNS)
    word = _load_seed(seed)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    product = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(program * ROWS * UNROLL, num_rows, num_programs * ROWS * UNROLL):
        rows: tl.tuple = ()
        grads: tl.tuple = ()
        for u in tl.static_range(UNROLL):
            row = start + u * ROWS + slot
            rows += (_load(x, row, column, num_rows, COLUMNS, WIDTH),)
            # Rows past the end are zero and add nothing.
            grads += (_load(grad, row, column, num_rows, COLUMNS, WIDTH),)
        for u in tl.static_range(UNROLL):
            row = start + u * ROWS + slot
            active = _active(_normalized(rows[u], norm), word, row, first, KEPT, UNIT, ROWS, WIDTH)
            passed = tl.where(active, grads[u], 0.0)
            total += passed
            product = tl.fma(passed, rows[u] - norm[0], product)
    at = program * COLUMNS + column
    tl.store(partial + at, tl.sum(total, 0) * (LEVELS / KEPT), column < COLUMNS)
    tl.store(partial + num_programs * COLUMNS + at, tl.sum(product, 0) * (LEVELS / KEPT), column < COLUMNS)


@jit
def combine_gradients(
    partial: tl.tensor,
    invstd: tl.tensor,
    grad_weight: tl.tensor,  # [COLUMNS]
    grad_bias: tl.tensor,  # [COLUMNS]
    num_programs: tl.tensor,
    COLUMNS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Combines the sums into the gradients of weight and bias."""
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([PROGRAMS, WIDTH], tl.float32)
    product = tl.zeros([PROGRAMS, WIDTH], tl.float32)
    for start in range(0, num_programs, PROGRAMS):
        program = start + tl.arange(0, PROGRAMS)
        total += _load_partial(partial, program, column, num_programs, COLUMNS)
        product += _load_partial(partial + num_programs * COLUMNS, program, column, num_programs, COLUMNS)
    inside = column < COLUMNS
    tl.store(grad_bias + column, tl.sum(total, 0), inside)
    tl.store(grad_weight + column, tl.sum(product, 0) * _load_row(invstd, column, COLUMNS), inside)


@jit
def normalize_back(
    grad: tl.tensor,  # [N, COLUMNS]
    x: tl.tensor,  # [N, COLUMNS]
    mean: tl.tensor,
    invstd: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    grad_weight: tl.tensor,
    grad_bias: tl.tensor,
    seed: tl.tensor,
    out: tl.tensor,  # [N, COLUMNS]
    num_rows: tl.tensor,
    KEPT: tl.constexpr,
    COLUMNS: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes the gradient of `x`: shifts and scalings of a column are removed, since the norm cancels them."""
    row, first = _place_from_the_end(num_rows, COLUMNS, ROWS, WIDTH)
    column = first + tl.arange(0, WIDTH)
    norm = _load_norm(mean, invstd, weight, bias, column, COLUMNS)
    shifted = _load_row(grad_bias, column, COLUMNS) / num_rows
    stretched = _load_row(grad_weight, column, COLUMNS) * _load_row(invstd, column, COLUMNS) / num_rows
    values = _load(x, row, column, num_rows, COLUMNS, WIDTH)
    grads = _load(grad, row, column, num_rows, COLUMNS, WIDTH)
    active = _active(_normalized(values, norm), _load_seed(seed), row, first, KEPT, UNIT, ROWS, WIDTH)
    passed = tl.where(active, grads * (LEVELS / KEPT), 0.0) - shifted[None, :]
    result = norm[1] * tl.fma(values - norm[0], -stretched[None, :], passed)
    _store(out, result, row, column, num_rows, COLUMNS, WIDTH)


@jit
def relu_drop(
    x: tl.tensor,  # [size]
    seed: tl.tensor,
    out: tl.tensor,  # [size]
    size: tl.tensor,
    KEPT: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes `out = dropout(relu(x))` in rows of `WIDTH`, whatever the shape of `x`."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row.to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    value = tl.load(x + at, at < size, 0.0).to(tl.float32)
    active = _active(value, _load_seed(seed), row, 0, KEPT, UNIT, ROWS, WIDTH)
    tl.store(out + at, tl.where(active, value * (LEVELS / KEPT), 0.0), at < size)


@jit
def relu_drop_back(
    grad: tl.tensor,  # [size]
    kept: tl.tensor,  # [size], the result of `relu_drop`
    out: tl.tensor,  # [size]
    size: tl.tensor,
    KEPT: tl.constexpr,
    UNIT: tl.constexpr,  # noqa: ARG001
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes the gradient of `x`: the gradient passes where the result is positive."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row.to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    value = tl.load(kept + at, at < size, 0.0)
    grads = tl.load(grad + at, at < size, 0.0).to(tl.float32)
    tl.store(out + at, tl.where(value <= 0, 0.0, grads * (LEVELS / KEPT)), at < size)


@jit
def gelu_drop(
    x: tl.tensor,  # [size]
    seed: tl.tensor,
    out: tl.tensor,  # [size]
    size: tl.tensor,
    KEPT: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes `out = dropout(gelu(x))` in rows of `WIDTH`, whatever the shape of `x`."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row.to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    value = tl.load(x + at, at < size, 0.0).to(tl.float32)
    drawn = _drawn(_load_seed(seed), row, 0, KEPT, UNIT, ROWS, WIDTH)
    tl.store(out + at, tl.where(drawn, value * _normal_cdf(value) * (LEVELS / KEPT), 0.0), at < size)


@jit
def gelu_drop_back(
    grad: tl.tensor,  # [size]
    x: tl.tensor,  # [size]
    seed: tl.tensor,
    out: tl.tensor,  # [size]
    size: tl.tensor,
    KEPT: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes the gradient of `x`; the mask is drawn again from the same seed."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at = row.to(tl.int64)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    value = tl.load(x + at, at < size, 0.0).to(tl.float32)
    grads = tl.load(grad + at, at < size, 0.0).to(tl.float32)
    drawn = _drawn(_load_seed(seed), row, 0, KEPT, UNIT, ROWS, WIDTH)
    # the density of the normal distribution, 1 / sqrt(2 pi) exp(-x^2 / 2)
    slope = _normal_cdf(value) + value * 0.3989422804014327 * tl.exp(-0.5 * value * value)
    tl.store(out + at, tl.where(drawn, grads * slope * (LEVELS / KEPT), 0.0), at < size)


@jit
def _normal_cdf(x: tl.tensor) -> tl.tensor:
    return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))


@jit
def _active(
    y: tl.tensor,  # [ROWS, WIDTH]
    seed: tl.tensor,
    row: tl.tensor,  # [ROWS]
    first: tl.tensor,  # first column of the tile
    KEPT: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> tl.tensor:
    """Returns where `y` is positive and kept; NaN counts as positive, so that it is not hidden."""
    active = ~(y <= 0)
    if KEPT < LEVELS:
        active = active & _drawn(seed, row, first, KEPT, UNIT, ROWS, WIDTH)
    return active


@jit
def _drawn(
    seed: tl.tensor,
    row: tl.tensor,  # [ROWS]
    first: tl.tensor,  # first column of the tile
    KEPT: tl.constexpr,
    UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> tl.tensor:
    """Returns where dropout keeps an entry, [ROWS, WIDTH]."""
    if KEPT == LEVELS:
        drawn = tl.full([ROWS, WIDTH], 1, tl.int1)
    else:
        # A 16-bit entry uses 16 random bits, a 32-bit entry 32.
        vector = first // UNIT + tl.arange(0, WIDTH // UNIT)
        zeros = tl.zeros([ROWS, WIDTH // UNIT], tl.int32)
        a, b, c, d = tl.philox(seed, vector[None, :] + zeros, row[:, None] + zeros, zeros, zeros, _ROUNDS)
        words = tl.join(tl.join(a, b), tl.join(c, d))
        if UNIT == 8:
            words = tl.join(words, words << 16)
        drawn = tl.reshape(words, [ROWS, WIDTH]) <= KEPT * (2**32 // LEVELS) - 1
    return drawn


@jit
def _normalized(x: tl.tensor, norm: tl.tuple) -> tl.tensor:
    # The same formula in both passes gives the same signs.
    return tl.fma(x - norm[0], norm[1], norm[2])


@jit
def _load_norm(
    mean: tl.tensor, invstd: tl.tensor, weight: tl.tensor, bias: tl.tensor, column: tl.tensor, COLUMNS: tl.constexpr
) -> tl.tuple:
    """Returns the mean, the factor and the bias, [1, WIDTH] each."""
    factor = _load_row(weight, column, COLUMNS) * _load_row(invstd, column, COLUMNS)
    return _load_row(mean, column, COLUMNS)[None, :], factor[None, :], _load_row(bias, column, COLUMNS)[None, :]


@jit
def _load_row(vector: tl.tensor, column: tl.tensor, COLUMNS: tl.constexpr) -> tl.tensor:
    """Loads the columns of a vector, or of the first row of a table, as float32."""
    return tl.load(vector + column, column < COLUMNS, 0.0).to(tl.float32)


@jit
def _load_seed(seed: tl.tensor) -> tl.tensor:
    return 0 if seed is None else tl.load(seed)


@jit
def _load_partial(
    partial: tl.tensor, program: tl.tensor, column: tl.tensor, num_programs: tl.tensor, COLUMNS: tl.constexpr
) -> tl.tensor:
    mask = (program < num_programs)[:, None] & (column < COLUMNS)[None, :]
    return tl.load(partial + program[:, None] * COLUMNS + column[None, :], mask, 0.0)


@jit
def _place(COLUMNS: tl.constexpr, WIDTH: tl.constexpr) -> tl.tuple:
    """Returns the index of this program within its block of columns, and its first column.

    The blocks of the same rows have adjacent program ids, so that they run at about the same time.
    """
    BLOCKS: tl.constexpr = (COLUMNS + WIDTH - 1) // WIDTH
    program = tl.program_id(0)
    return program // BLOCKS, program % BLOCKS * WIDTH


@jit
def _place_from_the_end(
    num_rows: tl.tensor, COLUMNS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
) -> tl.tuple:
    """Returns the rows and first column of this program.

    The last rows come first: the pass before has read them last, so that they may still be in the cache.
    """
    program, first = _place(COLUMNS, WIDTH)
    return (tl.cdiv(num_rows, ROWS) - 1 - program) * ROWS + tl.arange(0, ROWS), first


@jit
def _load(
    x: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    num_rows: tl.tensor,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> tl.tensor:
    """Loads the tile as float32, with zeros outside `x`."""
    at, mask = _entries(row, column, num_rows, COLUMNS, WIDTH)
    return tl.load(x + at, mask, 0.0).to(tl.float32)


@jit
def _store(
    out: tl.tensor,
    value: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    num_rows: tl.tensor,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    at, mask = _entries(row, column, num_rows, COLUMNS, WIDTH)
    tl.store(out + at, value, mask)


@jit
def _entries(
    row: tl.tensor, column: tl.tensor, num_rows: tl.tensor, COLUMNS: tl.constexpr, WIDTH: tl.constexpr
) -> tl.tuple:
    # The product of row and stride may exceed 32 bits.
    at = row.to(tl.int64)[:, None] * COLUMNS + column[None, :]
    mask = (row < num_rows)[:, None]
    if COLUMNS % WIDTH != 0:
        mask = mask & (column < COLUMNS)[None, :]
    return at, mask
