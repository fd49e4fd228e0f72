"""Inference in bounded memory: in blocks of rows, or a few columns at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from lazygnn.ops import Csr, spmm

# rows of the widest activation that inference holds at a time
INFERENCE_ROWS = 65_536
# device memory for the columns that inference propagates at a time
INFERENCE_BYTES = 3 * 2**28

Allocate = Callable[[tuple[int, int], torch.dtype], Tensor]


def by_rows(
    function: Callable[..., Tensor], device: torch.device, *parts: Tensor | Csr, allocate: Allocate | None = None
) -> Tensor:
    """Applies `function` to blocks of the rows of `parts` on `device`.

    Args:
        function: Computes rows of the result from rows of the parts.
        device: The compute device.
        parts: Tensors or matrices with the same number of rows.
        allocate: Allocates the result; by default it is on the device of the first part.
    """
    num_rows, out = len(parts[0]), torch.empty(0)
    for start in range(0, num_rows, INFERENCE_ROWS):
        block = function(*[_rows(part, start, start + INFERENCE_ROWS).to(device) for part in parts])
        if allocate is None and num_rows <= INFERENCE_ROWS:
            return block.to(parts[0].device)
        if start == 0:
            shape = (num_rows, block.shape[1])
            out = (
                torch.empty(shape, dtype=block.dtype, device=parts[0].device)
                if allocate is None
                else allocate(shape, block.dtype)
            )
        out[start : start + INFERENCE_ROWS] = block
    return out


def by_columns(
    propagate: Callable[..., Tensor],
    x: Tensor,
    device: torch.device,
    *others: Tensor,
    in_place: bool = False,
    num_rows: int | None = None,
) -> Tensor:
    """Applies `propagate` on `device` to as many columns at a time as `INFERENCE_BYTES` holds.

    Args:
        propagate: Computes columns of the result from columns of `x` and of the others.
        device: The compute device.
        others: Tensors of the shape of `x`.
        in_place: Whether the result overwrites `x`.
        num_rows: Rows in all processes, if `x` has those of one; all of them take the same columns at a time.
    """
    # a solver holds five tensors of its input's size
    width = max(INFERENCE_BYTES // (5 * max(len(x), num_rows or 1) * x.element_size()), 1)
    if width >= x.shape[1] and x.device == device and not in_place:
        return propagate(x, *others)
    out = x if in_place else torch.empty_like(x)
    for start in range(0, x.shape[1], width):
        columns = slice(start, start + width)
        out[:, columns] = propagate(*[each[:, columns].to(device).contiguous() for each in (x, *others)])
    return out


def multiply(matrix: Csr, x: Tensor, *, in_place: bool = False) -> Tensor:
    """Returns `matrix @ x` for a row of `x` for every node of this process, on the device of `x`.

    Args:
        matrix: A square matrix, on the compute device.
        x: May be in host memory or in a memory map.
        in_place: Whether the result overwrites `x`.
    """
    return by_columns(partial(spmm, matrix), x, matrix.device, in_place=in_place, num_rows=matrix.num_cols)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Sets evaluation mode within the context, and restores the mode after it."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _rows(x: Tensor | Csr, start: int, stop: int) -> Tensor | Csr:
    if start == 0 and stop >= len(x):
        return x
    if isinstance(x, Csr):
        return x.select(torch.arange(start, min(stop, len(x)), device=x.device))
    return x[start:stop]
