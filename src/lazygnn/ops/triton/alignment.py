"""Rows that start at multiples of 16 bytes, so that a thread can load 16 bytes at a time."""

import torch
import triton
from torch import Tensor

BYTES = 16


def columns_per_load(x: Tensor) -> int:
    """Returns the number of columns in 16 bytes."""
    return BYTES // x.element_size()


def padded_width(x: Tensor) -> int:
    """Returns the number of columns of `x`, rounded up to a multiple of 16 bytes."""
    unit = columns_per_load(x)
    padded: int = triton.cdiv(x.shape[1], unit) * unit
    return padded


def empty_rows(num_rows: int, like: Tensor) -> Tensor:
    """Returns uninitialized rows with the width and type of `like`, a multiple of 16 bytes apart."""
    return torch.empty(num_rows, padded_width(like), dtype=like.dtype, device=like.device)[:, : like.shape[1]]


def aligned(x: Tensor) -> Tensor:
    """Returns `x` itself if its rows are aligned, otherwise an aligned copy."""
    return x if is_aligned(x) else empty_rows(len(x), x).copy_(x)


def is_aligned(x: Tensor) -> bool:
    """Returns whether rows start at multiples of 16 bytes and the last 16 bytes of each row can be read."""
    end = x.storage_offset() + (len(x) - 1) * x.stride(0) + padded_width(x)
    aligned = (x.data_ptr() | x.stride(0) * x.element_size()) % BYTES == 0
    return x.stride(1) == 1 and aligned and end * x.element_size() <= x.untyped_storage().nbytes()


def with_dense_rows(x: Tensor) -> Tensor:
    """Returns `x` itself if the columns of a row are adjacent, otherwise a contiguous copy."""
    return x if x.stride(1) == 1 else x.contiguous()
