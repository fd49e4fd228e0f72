"""Triton kernels for the rows of a history: gather and warm start in one pass, scatter in another.

`V` nodes of the batch, `T` targets, `F` rows with a fresh value, `N` nodes of the graph.
"""

from functools import partial

import triton.language as tl

from lazygnn.ops.triton.jit import jit


# Different numbers of rows must not compile different kernels.
@partial(jit, unspecialized=("num_rows", "num_fresh", "num_targets"))
def gather_rows(
    values: tl.tensor,  # [N, COLUMNS]
    nodes: tl.tensor,  # [V] or None
    inputs: tl.tensor,  # [N, COLUMNS] or None
    targets: tl.tensor,  # [T] or None
    fresh: tl.tensor,  # [F, COLUMNS]
    out: tl.tensor,  # [V, OUT_STRIDE]
    previous: tl.tensor,  # [F, OUT_STRIDE] or None
    num_rows: tl.tensor,
    num_fresh: tl.tensor,
    num_targets: tl.tensor,
    beta: tl.tensor,
    move: tl.tensor,
    scale: tl.tensor,
    VALUE_STRIDE: tl.constexpr,
    INPUT_STRIDE: tl.constexpr,
    FRESH_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    FROM_STORED: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes the results of `history_rows.gather`.

    `FROM_STORED` selects the end from which the mix is computed, so that weights 0 and 1 are exact.
    """
    row, column = _tile(ROWS, WIDTH)
    inside, is_fresh, is_target = row < num_rows, row < num_fresh, row < num_targets
    x = _load(values, _find(nodes, row, inside), VALUE_STRIDE, column, inside, COLUMNS)
    now = _load(fresh, row, FRESH_STRIDE, column, is_fresh, COLUMNS)
    moved = x
    if inputs is not None:
        before = _load(inputs, _find(targets, row, is_target), INPUT_STRIDE, column, is_target, COLUMNS)
        moved = tl.where(is_target, tl.fma(now - before, move, x), x)
        if previous is not None:
            at = previous + row * OUT_STRIDE + column
            tl.store(at, tl.where(is_target, before, now), is_fresh & (column < OUT_STRIDE))
    mixed = tl.fma(now - moved, beta, moved) if FROM_STORED else tl.fma(now - moved, beta - 1.0, now)
    start = tl.where(is_target, scale * mixed, tl.where(is_fresh, mixed, x))
    # Padding is written too: the device would have to read a memory sector that is written only in part.
    tl.store(out + row * OUT_STRIDE + column, start, inside & (column < OUT_STRIDE))


@partial(jit, unspecialized=("num_targets",))
def scatter_rows(
    targets: tl.tensor,  # [T]
    new: tl.tensor,  # [T, COLUMNS]
    values: tl.tensor,  # [N, COLUMNS]
    fresh: tl.tensor,  # [T, COLUMNS] or None
    inputs: tl.tensor,  # [N, COLUMNS] or None
    pushed: tl.tensor,  # [N]
    step: tl.tensor,  # []
    num_targets: tl.tensor,
    NEW_STRIDE: tl.constexpr,
    VALUE_STRIDE: tl.constexpr,
    FRESH_STRIDE: tl.constexpr,
    INPUT_STRIDE: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes `values[targets] = new`, `inputs[targets] = fresh` and `pushed[targets] = step`."""
    row, column = _tile(ROWS, WIDTH)
    inside = row < num_targets
    place = _find(targets, row, inside)
    mask = inside & (column < COLUMNS)
    result = _load(new, row, NEW_STRIDE, column, inside, COLUMNS)
    if inputs is not None:
        given = _load(fresh, row, FRESH_STRIDE, column, inside, COLUMNS)
        tl.store(inputs + place * INPUT_STRIDE + column, given, mask)
    tl.store(values + place * VALUE_STRIDE + column, result, mask)
    if tl.program_id(1) == 0:
        tl.store(pushed + place, tl.load(step), inside)


@jit
def _tile(ROWS: tl.constexpr, WIDTH: tl.constexpr) -> tl.tuple:
    """Returns the rows of this program, [ROWS, 1], and its columns, [1, WIDTH]."""
    # The product of row and stride may exceed 32 bits.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    return row[:, None], (tl.program_id(1) * WIDTH + tl.arange(0, WIDTH))[None, :]


@jit
def _find(index: tl.tensor, row: tl.tensor, inside: tl.tensor) -> tl.tensor:
    return row if index is None else tl.load(index + row, inside, 0).to(tl.int64)


@jit
def _load(
    table: tl.tensor,
    row: tl.tensor,
    STRIDE: tl.constexpr,
    column: tl.tensor,
    inside: tl.tensor,
    COLUMNS: tl.constexpr,
) -> tl.tensor:
    """Loads entries as float32, with zeros outside the table."""
    return tl.load(table + row * STRIDE + column, inside & (column < COLUMNS), 0.0).to(tl.float32)
