"""Helpers that many test modules share: `from tests.helpers import random_rows`."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from lazygnn.ops import Csr

Test = TypeVar("Test", bound=Callable[..., Any])


def random_rows(
    num_rows: int,
    channels: int,
    seed: int,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Returns normally distributed numbers, the same on every device; 16-bit numbers are rounded from float32."""
    drawn = torch.float64 if dtype == torch.float64 else torch.float32
    numbers = torch.randn(num_rows, channels, dtype=drawn, generator=torch.Generator().manual_seed(seed))
    return numbers.to(device, dtype)


def random_matrix(num_rows: int, num_cols: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Csr:
    """Returns a sparse matrix of which about 40 % of the entries are stored, with int32 indices."""
    stored = random_rows(num_rows, num_cols, seed) > 0.25
    row, col = stored.nonzero(as_tuple=True)
    value = random_rows(num_rows, num_cols, seed + 1, dtype)[row, col]
    return Csr.from_sorted(row, col, value, (num_rows, num_cols))


def assert_equal_up_to_rounding(out: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Compares with float64: sums are rounded in float32 or float64, and 16-bit results once more."""
    assert out.dtype == dtype
    wide = torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(out.double(), expected, rtol=torch.finfo(dtype).eps, atol=16 * torch.finfo(wide).eps)


def needs_cuda(test: Test) -> Test:
    """Marks a test as `gpu` and skips it without a CUDA device."""
    skipped = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    marked: Test = pytest.mark.gpu(skipped(test))
    return marked
