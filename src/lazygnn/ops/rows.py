"""The rows of a history on an accelerator: gathered, warm-started and converted in one pass, scattered in another.

Everything is read once and combined in float32. What is given out comes in rows of a multiple of 16 bytes, as the fused
products want them. The rows of a history lie as close as they can.

`V` nodes of the batch, `T` targets, `F` rows with a fresh value, `C` channels.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lazygnn.ops.fused import empty_rows
from lazygnn.ops.kernels import Kernel, jit

# entries of a tile, and how many of them lie in one row at most
_ENTRIES = 1024
_WIDTH = 128
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}

# a table and the indices of the rows that are meant; None stands for all of them, in order
Rows = tuple[Tensor, Tensor | None]


def gather(
    values: Rows,
    inputs: Rows | None,
    fresh: Tensor,
    num_targets: int,
    *,
    mix: float,
    move: float = 0.0,
    scale: float = 1.0,
    with_then: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Where a pass starts, [V, C], and what was fresh then, [F, C], both in the type of `fresh`.

    A target starts from `scale lerp(value + move (fresh - input), fresh, mix)`, any other row with a fresh value from
    `lerp(value, fresh, mix)`, the rest from their value.

    Args:
        values: What is stored for all nodes, [V, C].
        inputs: What was fresh for the targets at their last visit, [T, C]; without it nothing moves.
        fresh: What is fresh for the first nodes, [F, C].
        num_targets: T.
        mix: Share of `fresh`.
        move: Weight of its change.
        scale: Factor of the whole.
        with_then: Whether the inputs are given out, with `fresh` below them.
    """
    _check("fresh", len(fresh), fresh, num_targets, fresh)
    _check("values", num_rows := _length(values), values[0], len(fresh), fresh)
    if inputs is not None:
        _check("inputs", _length(inputs), inputs[0], num_targets, fresh)
    (table, nodes), (past, targets) = values, inputs or (None, None)
    fresh = _dense(fresh)
    out = empty_rows(num_rows, fresh)
    then = None
    if past is not None and with_then:
        then = empty_rows(len(fresh), fresh)
    given = {
        "values": table,
        "nodes": None if nodes is None else nodes.contiguous(),
        "inputs": past,
        "targets": None if targets is None else targets.contiguous(),
        "fresh": fresh,
        "out": out,
        "then": then,
        "num_rows": num_rows,
        "num_fresh": len(fresh),
        "num_targets": num_targets,
        "mix": float(mix),
        "move": float(move),
        "scale": float(scale),
        "VALUE_STRIDE": table.stride(0),
        "INPUT_STRIDE": 0 if past is None else past.stride(0),
        "FRESH_STRIDE": fresh.stride(0),
        "OUT_STRIDE": out.stride(0),
        "FROM_STORED": mix < 0.5,
    }
    _launch(gather_rows, num_rows, out.stride(0), [fresh, table, past], given)
    return out, then


def scatter(targets: Tensor, pairs: Sequence[tuple[Tensor, Tensor]], pushed: Tensor, step: Tensor) -> None:
    """Stores what a pass gave, and its input where that is kept, and notes when.

    Args:
        targets: Rows to write, all different, [T].
        pairs: Stored rows of one or two kinds, and what they are replaced by, [T, C] or more rows.
        pushed: Where the step is noted for every row.
        step: The step, on the device.
    """
    for table, rows in pairs:
        _check("values", len(rows), rows, len(targets), table)
    values, new = pairs[0][0], _dense(pairs[0][1])
    inputs, fresh = (pairs[1][0], _dense(pairs[1][1])) if len(pairs) > 1 else (None, None)
    given = {
        "targets": targets.contiguous(),
        "new": new,
        "values": values,
        "fresh": fresh,
        "inputs": inputs,
        "pushed": pushed,
        "step": step,
        "num_targets": len(targets),
        "NEW_STRIDE": new.stride(0),
        "VALUE_STRIDE": values.stride(0),
        "FRESH_STRIDE": 0 if fresh is None else fresh.stride(0),
        "INPUT_STRIDE": 0 if inputs is None else inputs.stride(0),
    }
    _launch(scatter_rows, len(targets), new.shape[1], [new, values, fresh, inputs], given)


# how many rows there are must not make another kernel
@partial(jit, unspecialized=("num_rows", "num_fresh", "num_targets"))
def gather_rows(
    values: tl.tensor,  # [N, COLUMNS]
    nodes: tl.tensor,  # [V] or None
    inputs: tl.tensor,  # [N, COLUMNS] or None
    targets: tl.tensor,  # [T] or None
    fresh: tl.tensor,  # [F, COLUMNS]
    out: tl.tensor,  # [V, OUT_STRIDE]
    then: tl.tensor,  # [F, OUT_STRIDE] or None
    num_rows: tl.tensor,
    num_fresh: tl.tensor,
    num_targets: tl.tensor,
    mix: tl.tensor,
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
    """What `gather` gives; `FROM_STORED` says which end of the mix it is computed from, so that both ends are exact."""
    row, column = _tile(ROWS, WIDTH)
    inside, is_fresh, is_target = row < num_rows, row < num_fresh, row < num_targets
    x = _load(values, _find(nodes, row, inside), VALUE_STRIDE, column, inside, COLUMNS)
    now = _load(fresh, row, FRESH_STRIDE, column, is_fresh, COLUMNS)
    moved = x
    if inputs is not None:
        before = _load(inputs, _find(targets, row, is_target), INPUT_STRIDE, column, is_target, COLUMNS)
        moved = tl.where(is_target, tl.fma(now - before, move, x), x)
        if then is not None:
            at = then + row * OUT_STRIDE + column
            tl.store(at, tl.where(is_target, before, now), is_fresh & (column < OUT_STRIDE))
    mixed = tl.fma(now - moved, mix, moved) if FROM_STORED else tl.fma(now - moved, mix - 1.0, now)
    start = tl.where(is_target, scale * mixed, tl.where(is_fresh, mixed, x))
    # to the end of the row: half a sector is read before it is written
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
    """`values[targets] = new`, `inputs[targets] = fresh` and `pushed[targets] = step`."""
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
    """The rows of this program, [ROWS, 1], and its columns, [1, WIDTH]."""
    # rows times columns may be more than 32 bits can count
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
    """Entries in float32, zero where there are none."""
    return tl.load(table + row * STRIDE + column, inside & (column < COLUMNS), 0.0).to(tl.float32)


def _launch(
    kernel: Kernel, num_rows: int, columns: int, tables: Sequence[Tensor | None], given: dict[str, Any]
) -> None:
    """Covers so many rows and columns with tiles; `tables` are all that is read or written, save for the result."""
    present = [table for table in tables if table is not None]
    if num_rows == 0:
        return
    width = min(triton.next_power_of_2(columns), _WIDTH)
    tile = {"ROWS": _ENTRIES // width, "WIDTH": width}
    grid = (triton.cdiv(num_rows, tile["ROWS"]), triton.cdiv(columns, width))
    with torch.cuda.device_of(present[0]):
        kernel[grid](**given, COLUMNS=present[0].shape[1], **tile, **_OPTIONS)


def _length(rows: Rows) -> int:
    table, index = rows
    return len(table if index is None else index)


def _dense(rows: Tensor) -> Tensor:
    return rows if rows.stride(1) == 1 else rows.contiguous()


def _check(name: str, num_rows: int, rows: Tensor, least: int, like: Tensor) -> None:
    # a kernel reads on where a tensor ends
    if num_rows < least or rows.shape[1] != like.shape[1]:
        needed = f"({least}, {like.shape[1]}) or more rows"
        raise ValueError(f"`{name}` has shape ({num_rows}, {rows.shape[1]}); the pass needs {needed}")
