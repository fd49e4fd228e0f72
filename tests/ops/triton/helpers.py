"""Helpers of the kernel tests."""

import os

import pytest
import torch
from torch import Tensor

from lazygnn.ops import Csr
from tests.helpers import random_rows

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DTYPES = [torch.float32, torch.bfloat16, torch.float16]

# in pieces of 8 entries: rows that start or end with a piece, rows of one piece or many, and no piece at all
LONG_ROWS = [[8], [16, 8], [3, 5, 8, 0, 24], [7, 9, 9, 7], [1, 100, 1], [0, 15, 0, 17, 40, 3], [7], [200, 1, 0, 90]]

only_interpreted = pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreter's process")


def draw(num_rows: int, columns: int, device: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Returns normally distributed numbers, in float32 by default."""
    return random_rows(num_rows, columns, seed, dtype, device)


def matrix(counts: list[int], num_cols: int, device: str, index: torch.dtype = torch.int32) -> Csr:
    """Returns a matrix with random columns and values, and the given number of entries in every row."""
    generator, total = torch.Generator().manual_seed(len(counts)), sum(counts)
    rowptr = torch.tensor([0, *counts]).cumsum(0)
    col = torch.randint(0, num_cols, (total,), generator=generator)
    return Csr(rowptr.to(index), col.to(index), torch.randn(total, generator=generator), num_cols).to(device)
