"""Copies rows from and to host memory that the accelerator addresses directly.

A few programs are enough to saturate the bus, which leaves the rest of the device to concurrent computations. Nothing
is converted: rows are copied as 32-bit words, including the padding to a multiple of 16 bytes.
"""

from functools import partial

import torch
import triton
import triton.language as tl
from torch import Tensor

from lazygnn.ops.triton.alignment import aligned, empty_rows, is_aligned, padded_width
from lazygnn.ops.triton.jit import jit

# Each program occupies a multiprocessor until its transfer is done.
_PROGRAMS = 32
# words of a tile, all in flight at a time, and the most words of a row in a tile
_WORDS = 4096
_WIDTH = 1024
# Nothing is added here, but Triton warns if the fusion of sums is not specified.
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}


def allocate_rows(num_rows: int, like: Tensor) -> Tensor:
    """Returns uninitialized memory for `num_rows` rows of a table."""
    if like.dim() == 2:
        return empty_rows(num_rows, like)
    return torch.empty(num_rows, dtype=like.dtype, device=like.device)


def gather(table: Tensor, rows: Tensor, out: Tensor, count: Tensor | None = None) -> None:
    """Computes `out = table[rows]` for an `out` from `allocate_rows`.

    Args:
        table: Rows that are a multiple of 16 bytes apart, [N, C], or 32-bit numbers, [N].
        rows: Indices of the rows to read, [V].
        out: Memory with the same layout as the table, [V, C] or [V].
        count: How many rows to copy, a scalar on the device; all rows by default.
    """
    _copy(table, rows, out, None, count)


def scatter(table: Tensor, rows: Tensor, new: Tensor) -> None:
    """Computes `table[rows] = new` for distinct rows.

    Args:
        table: As for `gather`; the padding of a row is written too.
        rows: Indices of the rows to write, [T].
        new: New rows of the same type, [T, C] or [T].
    """
    _copy(new if new.dim() == 1 else aligned(new), None, table, rows)


@partial(jit, unspecialized=("num_rows",))
def copy_rows(
    source: tl.tensor,  # [.., WORDS]
    source_rows: tl.tensor,  # [V], or None for all rows in order
    out: tl.tensor,  # [.., WORDS]
    out_rows: tl.tensor,  # [V] or None
    count: tl.tensor,  # [] or None
    num_rows: tl.tensor,
    SOURCE_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    WORDS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Computes `out[out_rows] = source[source_rows]` for the first `count` rows, `ROWS` rows at a time per program."""
    end_row = num_rows if count is None else tl.minimum(num_rows, tl.load(count).to(num_rows.dtype))
    for first in range(tl.program_id(0) * ROWS, end_row, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        inside = row < end_row
        start = source + _find(source_rows, row, inside) * SOURCE_STRIDE
        end = out + _find(out_rows, row, inside) * OUT_STRIDE
        for offset in range(0, WORDS, WIDTH):
            word = offset + tl.arange(0, WIDTH)[None, :]
            mask = inside & (word < WORDS)
            tl.store(end + word, tl.load(start + word, mask, 0), mask)


@jit
def _find(rows: tl.tensor, row: tl.tensor, inside: tl.tensor) -> tl.tensor:
    # The product of row and stride may exceed 32 bits.
    return (row if rows is None else tl.load(rows + row, inside, 0)).to(tl.int64)


def _copy(
    source: Tensor, source_rows: Tensor | None, out: Tensor, out_rows: Tensor | None, count: Tensor | None = None
) -> None:
    _check(source, source_rows, out, out_rows)
    num_rows = len(source if source_rows is None else source_rows)
    if num_rows == 0:
        return
    source, out = _words(source), _words(out)
    width = min(triton.next_power_of_2(source.shape[1]), _WIDTH)
    height = max(_WORDS // width, 1)
    with torch.cuda.device_of(source):
        copy_rows[(min(triton.cdiv(num_rows, height), _PROGRAMS),)](
            source=source,
            source_rows=None if source_rows is None else source_rows.contiguous(),
            out=out,
            out_rows=None if out_rows is None else out_rows.contiguous(),
            count=count,
            num_rows=num_rows,
            SOURCE_STRIDE=source.stride(0),
            OUT_STRIDE=out.stride(0),
            WORDS=source.shape[1],
            ROWS=height,
            WIDTH=width,
            **_OPTIONS,
        )


def _words(rows: Tensor) -> Tensor:
    """Returns a view of the same memory as 32-bit words, [.., WORDS]."""
    if rows.dim() == 1:
        return rows.view(torch.int32).unsqueeze(1)
    return rows.as_strided((len(rows), padded_width(rows)), rows.stride()).view(torch.int32)


def _check(source: Tensor, source_rows: Tensor | None, out: Tensor, out_rows: Tensor | None) -> None:
    # A kernel would read past the end of a tensor, and would copy bits of any type.
    num_source, num_out = (len(x if rows is None else rows) for x, rows in ((source, source_rows), (out, out_rows)))
    if (num_source, source.shape[1:], source.dtype) != (num_out, out.shape[1:], out.dtype):
        given, wanted = ((n, *x.shape[1:]) for n, x in ((num_source, source), (num_out, out)))
        raise ValueError(f"cannot copy rows of shape {given} in {source.dtype} to {wanted} in {out.dtype}")
    for rows in (source, out):
        if rows.element_size() != 4 if rows.dim() == 1 else not is_aligned(rows):
            raise ValueError(
                "a table must have rows that are a multiple of 16 bytes apart, or 32-bit numbers; "
                f"got {rows.dtype} with strides {rows.stride()}"
            )
