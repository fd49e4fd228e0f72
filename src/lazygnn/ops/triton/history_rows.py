"""Rows of a history on an accelerator: gathered, warm-started and converted in one pass, scattered in another.

Everything is read once and combined in float32. Results have rows that are a multiple of 16 bytes apart, as the
products need them. The rows of a history itself are not padded.

`V` nodes of the batch, `T` targets, `F` rows with a fresh value, `C` channels.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from lazygnn.ops.triton.alignment import empty_rows, with_dense_rows
from lazygnn.ops.triton.history_row_kernels import gather_rows, scatter_rows
from lazygnn.ops.triton.jit import Kernel

# entries of a tile, and the most columns of a tile
_ENTRIES = 1024
_WIDTH = 128
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}

# a table and the indices of its rows; None selects all rows in order
Rows = tuple[Tensor, Tensor | None]


def gather(
    values: Rows,
    inputs: Rows | None,
    fresh: Tensor,
    num_targets: int,
    *,
    beta: float,
    move: float = 0.0,
    scale: float = 1.0,
    with_previous: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Returns the start values of a pass, [V, C], and the earlier inputs, [F, C], both in the type of `fresh`.

    A target starts from `scale lerp(value + move (fresh - input), fresh, beta)`, any other row with a fresh value from
    `lerp(value, fresh, beta)`, and all other rows from their stored value.

    Args:
        values: Stored values of all nodes, [V, C].
        inputs: Fresh values of the targets at their last visit, [T, C]; without them `move` has no effect.
        fresh: Fresh values of the first nodes, [F, C].
        num_targets: T.
        beta: Weight of `fresh`.
        move: Weight of the change of `fresh` since the last visit.
        scale: Factor of the start value of a target.
        with_previous: Whether to return the earlier inputs, followed by `fresh` for the other rows.
    """
    _check("fresh", len(fresh), fresh, num_targets, fresh)
    _check("values", num_rows := _length(values), values[0], len(fresh), fresh)
    if inputs is not None:
        _check("inputs", _length(inputs), inputs[0], num_targets, fresh)
    (table, nodes), (stored_inputs, targets) = values, inputs or (None, None)
    fresh = with_dense_rows(fresh)
    out = empty_rows(num_rows, fresh)
    previous = None
    if stored_inputs is not None and with_previous:
        previous = empty_rows(len(fresh), fresh)
    given = {
        "values": table,
        "nodes": None if nodes is None else nodes.contiguous(),
        "inputs": stored_inputs,
        "targets": None if targets is None else targets.contiguous(),
        "fresh": fresh,
        "out": out,
        "previous": previous,
        "num_rows": num_rows,
        "num_fresh": len(fresh),
        "num_targets": num_targets,
        "beta": float(beta),
        "move": float(move),
        "scale": float(scale),
        "VALUE_STRIDE": table.stride(0),
        "INPUT_STRIDE": 0 if stored_inputs is None else stored_inputs.stride(0),
        "FRESH_STRIDE": fresh.stride(0),
        "OUT_STRIDE": out.stride(0),
        "FROM_STORED": beta < 0.5,
    }
    _launch(gather_rows, num_rows, out.stride(0), [fresh, table, stored_inputs], given)
    return out, previous


def scatter(targets: Tensor, pairs: Sequence[tuple[Tensor, Tensor]], pushed: Tensor, step: Tensor) -> None:
    """Stores the results of a pass, its inputs if these are kept, and the step number.

    Args:
        targets: Rows to write, all distinct, [T].
        pairs: One or two tables, each with its new rows, [T, C] or more rows.
        pushed: The step of the last write of every row.
        step: The current step, on the device.
    """
    for table, rows in pairs:
        _check("values", len(rows), rows, len(targets), table)
    values, new = pairs[0][0], with_dense_rows(pairs[0][1])
    inputs, fresh = (pairs[1][0], with_dense_rows(pairs[1][1])) if len(pairs) > 1 else (None, None)
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


def _launch(
    kernel: Kernel, num_rows: int, columns: int, tables: Sequence[Tensor | None], given: dict[str, Any]
) -> None:
    """Covers the rows and columns with tiles; `tables` are all tables that are read or written, except the result."""
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


def _check(name: str, num_rows: int, rows: Tensor, least: int, like: Tensor) -> None:
    # A kernel would read past the end of a tensor that is too short.
    if num_rows < least or rows.shape[1] != like.shape[1]:
        needed = f"({least}, {like.shape[1]}) or more rows"
        raise ValueError(f"`{name}` has shape ({num_rows}, {rows.shape[1]}); the pass needs {needed}")
