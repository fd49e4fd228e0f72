"""Rows that can be loaded 16 bytes at a time."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lazygnn.ops.triton.alignment import (
    aligned,
    columns_per_load,
    empty_rows,
    is_aligned,
    padded_width,
    with_dense_rows,
)
from tests.helpers import random_rows


@pytest.mark.parametrize(
    ("dtype", "columns", "unit", "width"),
    [
        (torch.float32, 47, 4, 48),
        (torch.float32, 48, 4, 48),
        (torch.bfloat16, 49, 8, 56),
        (torch.int8, 1, 16, 16),
        (torch.float64, 3, 2, 4),
    ],
    ids=str,
)
def test_rows_are_padded_to_16_bytes(dtype: torch.dtype, columns: int, unit: int, width: int) -> None:
    x = torch.zeros(5, columns, dtype=dtype)
    assert columns_per_load(x) == unit
    assert padded_width(x) == width
    out = empty_rows(3, x)
    assert (out.shape, out.stride(), out.dtype) == ((3, columns), (width, 1), dtype)
    assert is_aligned(out)
    assert aligned(out) is out


def test_a_view_is_copied_into_aligned_rows(view: Callable[[Tensor], Tensor]) -> None:
    x = view(random_rows(30, 48, 0, torch.float32))
    out = aligned(x)
    assert is_aligned(out)
    assert torch.equal(out, x)
    dense = with_dense_rows(x)
    assert dense.stride(1) == 1
    assert (dense is x) == (x.stride(1) == 1)
    assert torch.equal(dense, x)


def test_the_padding_of_the_last_row_must_be_in_memory() -> None:
    memory = torch.zeros(5 * 48)
    assert is_aligned(memory.as_strided((5, 47), (48, 1)))
    short = torch.zeros(5 * 48 - 1).as_strided((5, 47), (48, 1))
    assert not is_aligned(short)
    assert aligned(short) is not short
