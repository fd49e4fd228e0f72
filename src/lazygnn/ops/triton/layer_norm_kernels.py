"""Layer norm in Triton: one pass over the rows forward, one backward.

A program processes whole rows, `WIDTH` columns padded to a power of two. The backward pass computes mean and deviation
of a row again instead of reading them. Each program sums the gradients of weight and bias over its rows in float32; no
sum is atomic, so the same rows on the same device give the same bits.
"""

import triton.language as tl

from lazygnn.ops.triton.jit import jit


@jit
def normalize_rows(
    x: tl.tensor,  # [N, COLUMNS]
    weight: tl.tensor,  # [COLUMNS]
    bias: tl.tensor,  # [COLUMNS]
    out: tl.tensor,  # [N, COLUMNS]
    num_rows: tl.tensor,
    eps: tl.tensor,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes `out = (x - mean) invstd weight + bias`, with the statistics of each row."""
    column = tl.arange(0, WIDTH)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    at, inside = _entries(row, column, num_rows, COLUMNS, WIDTH)
    unit, _ = _normalized(tl.load(x + at, inside, 0.0).to(tl.float32), column, eps, COLUMNS, WIDTH)
    scale = tl.load(weight + column, column < COLUMNS, 0.0).to(tl.float32)
    shift = tl.load(bias + column, column < COLUMNS, 0.0).to(tl.float32)
    tl.store(out + at, tl.fma(unit, scale[None, :], shift[None, :]), inside)


@jit
def normalize_rows_back(
    grad: tl.tensor,  # [N, COLUMNS]
    x: tl.tensor,  # [N, COLUMNS]
    weight: tl.tensor,  # [COLUMNS]
    out: tl.tensor,  # [N, COLUMNS]
    partial: tl.tensor,  # [2, P, COLUMNS]
    num_rows: tl.tensor,
    num_programs: tl.tensor,
    eps: tl.tensor,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes the gradient of `x`, and sums those of weight and bias per program."""
    column = tl.arange(0, WIDTH)
    program = tl.program_id(0)
    scale = tl.load(weight + column, column < COLUMNS, 0.0).to(tl.float32)
    stretched = tl.zeros([ROWS, WIDTH], tl.float32)
    shifted = tl.zeros([ROWS, WIDTH], tl.float32)
    for start in range(program * ROWS, num_rows, num_programs * ROWS):
        at, inside = _entries(start + tl.arange(0, ROWS), column, num_rows, COLUMNS, WIDTH)
        values = tl.load(x + at, inside, 0.0).to(tl.float32)
        # Rows past the end and padded columns are zero and add nothing.
        grads = tl.load(grad + at, inside, 0.0).to(tl.float32)
        unit, invstd = _normalized(values, column, eps, COLUMNS, WIDTH)
        stretched = tl.fma(grads, unit, stretched)
        shifted += grads
        scaled = grads * scale[None, :]
        mean = tl.sum(scaled, 1) / COLUMNS
        slope = tl.sum(scaled * unit, 1) / COLUMNS
        result = (tl.fma(unit, -slope[:, None], scaled) - mean[:, None]) * invstd[:, None]
        tl.store(out + at, result, inside)
    to = program * COLUMNS + column
    tl.store(partial + to, tl.sum(stretched, 0), column < COLUMNS)
    tl.store(partial + num_programs * COLUMNS + to, tl.sum(shifted, 0), column < COLUMNS)


@jit
def _normalized(
    values: tl.tensor, column: tl.tensor, eps: tl.tensor, COLUMNS: tl.constexpr, WIDTH: tl.constexpr
) -> tl.tuple:
    """Returns the rows with mean 0 and variance 1, zero in padded columns, and the factor of each row."""
    apart = values - (tl.sum(values, 1) / COLUMNS)[:, None]
    if COLUMNS != WIDTH:
        apart = tl.where((column < COLUMNS)[None, :], apart, 0.0)
    invstd = 1.0 / tl.sqrt_rn(tl.sum(apart * apart, 1) / COLUMNS + eps)
    return apart * invstd[:, None], invstd


@jit
def _entries(
    row: tl.tensor, column: tl.tensor, num_rows: tl.tensor, COLUMNS: tl.constexpr, WIDTH: tl.constexpr
) -> tl.tuple:
    # The product of row and stride may exceed 32 bits.
    at = row.to(tl.int64)[:, None] * COLUMNS + column[None, :]
    inside = (row < num_rows)[:, None]
    if COLUMNS != WIDTH:
        inside = inside & (column < COLUMNS)[None, :]
    return at, inside
