"""A sparse matrix in compressed rows, used for the normalized adjacency and for sparse features.

Indices are int32 whenever they fit, which halves the memory traffic of indices in a product.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

_INT32_MAX = 2**31 - 1
_ENTRIES_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class Csr:
    """Stores `value[rowptr[i]:rowptr[i+1]]` in the columns `col[rowptr[i]:rowptr[i+1]]` of row `i`.

    Attributes:
        products: The module that multiplies a matrix of this class; `None` for a matrix that one process holds.
    """

    products: ClassVar[Any] = None

    rowptr: Tensor  # [R + 1]
    col: Tensor  # [E]
    value: Tensor  # [E]
    num_cols: int

    @staticmethod
    def from_arrays(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, num_cols: int) -> "Csr":
        """Builds the matrix from the three CSR arrays of numpy or scipy."""
        index = index_dtype(len(data), num_cols, len(indptr))
        return Csr(
            rowptr=to_tensor(indptr).to(index),
            col=to_tensor(indices).to(index),
            value=to_tensor(data).to(torch.float32),
            num_cols=num_cols,
        )

    @staticmethod
    def from_sorted(row: Tensor, col: Tensor, value: Tensor, shape: tuple[int, int]) -> "Csr":
        """Builds the matrix from coordinates sorted by row."""
        index = index_dtype(len(value), *shape)
        return Csr(_rowptr(row, shape[0]).to(index), col.to(index), value, shape[1])

    @property
    def num_rows(self) -> int:
        """Returns the number of rows."""
        return len(self.rowptr) - 1

    @property
    def shape(self) -> tuple[int, int]:
        """Returns the numbers of rows and columns."""
        return self.num_rows, self.num_cols

    @property
    def device(self) -> torch.device:
        """Returns the device of the three arrays."""
        return self.value.device

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        kind = str(self.value.dtype).removeprefix("torch.")
        return f"Csr(shape={self.shape}, num_values={len(self.value)}, dtype={kind}, device={str(self.device)!r})"

    def to(self, target: torch.device | torch.dtype | str, *, non_blocking: bool = False) -> "Csr":
        """Moves the matrix to a device, or its values to a dtype; returns itself, with its caches, if already there."""
        if target == self.value.dtype:
            return self
        if isinstance(target, torch.dtype):
            return Csr(self.rowptr, self.col, self.value.to(target), self.num_cols)
        if find_device(target) == self.device:
            return self
        return self.map(lambda part: part.to(target, non_blocking=non_blocking))

    def pin_memory(self) -> "Csr":
        """Returns a copy in page-locked memory."""
        return self.map(lambda part: part.pin_memory())

    def map(self, move: Callable[[Tensor], Tensor]) -> "Csr":
        """Returns the same matrix with `move` applied to each array."""
        return Csr(move(self.rowptr), move(self.col), move(self.value), self.num_cols)

    def with_value(self, value: Tensor) -> "Csr":
        """Returns the same pattern with other values; both share the transposed pattern, which is computed once."""
        other = Csr(self.rowptr, self.col, value, self.num_cols)
        other.__dict__["_transposition"] = self._transposition
        other.__dict__["derived"] = self.derived
        return other

    @cached_property
    def derived(self) -> dict[str, Any]:
        """Returns a cache of values that kernels compute from the pattern; shared by matrices with the same pattern."""
        return {}

    @cached_property
    def T(self) -> "Csr":
        """Returns the transposed matrix, with rows sorted by column."""
        rowptr, col, order = self._transposition
        other = Csr(rowptr, col, self.value[order], self.num_rows)
        other.__dict__["derived"] = self.derived.setdefault("transposed", {})
        return other

    @cached_property
    def _transposition(self) -> tuple[Tensor, Tensor, Tensor]:
        order = torch.argsort(self.col, stable=True)
        rowptr = _rowptr(self.col[order], self.num_cols)
        return rowptr.to(self.rowptr.dtype), self.row_index()[order].to(self.col.dtype), order

    def row_index(self) -> Tensor:
        """Returns the row of every stored value, [E]."""
        rows = torch.arange(self.num_rows, device=self.device)
        return torch.repeat_interleave(rows, self.rowptr.diff().long(), output_size=len(self.col))

    def rows(self, stop: int) -> "Csr":
        """Returns the first `stop` rows, without a copy."""
        if stop == self.num_rows:
            return self
        end = int(self.rowptr[stop])
        return Csr(self.rowptr[: stop + 1], self.col[:end], self.value[:end], self.num_cols)

    def select(self, rows: Tensor) -> "Csr":
        """Returns the given rows, in the given order."""
        start = self.rowptr[rows].long()
        count = self.rowptr[rows + 1].long() - start
        rowptr = torch.zeros(len(rows) + 1, dtype=torch.long, device=self.device)
        torch.cumsum(count, 0, out=rowptr[1:])
        total = int(rowptr[-1])
        at = torch.repeat_interleave(start - rowptr[:-1], count, output_size=total)
        at += torch.arange(total, device=self.device)
        return Csr(rowptr.to(self.rowptr.dtype), self.col[at], self.value[at], self.num_cols)

    def permute(self, order: Tensor) -> "Csr":
        """Permutes rows and columns of a square matrix: row `order[i]` moves to row `i`; rows are sorted by column.

        Processes a few million entries at a time, which bounds the memory needed besides the result.
        """
        col, value, end = torch.empty_like(self.col), torch.empty_like(self.value), 0
        for cols, values in self.permuted_blocks(order):
            entries = slice(end, end + len(cols))
            col[entries], value[entries] = cols, values
            end += len(cols)
        return Csr(self.permuted_rowptr(order), col, value, self.num_cols)

    def permuted_rowptr(self, order: Tensor) -> Tensor:
        """Returns the row pointers after `permute`."""
        rowptr = torch.zeros(len(order) + 1, dtype=torch.long, device=self.device)
        torch.cumsum(self.rowptr.diff()[order], 0, out=rowptr[1:])
        return rowptr.to(self.rowptr.dtype)

    def permuted_blocks(self, order: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields columns and values after `permute`, a few million entries at a time."""
        position = torch.empty_like(order)
        position[order] = torch.arange(len(order), device=order.device)
        for start, stop in row_chunks(self.permuted_rowptr(order)):
            part = self.select(order[start:stop])
            key, at = (part.row_index() * self.num_cols + position[part.col]).sort(stable=True)
            yield (key % self.num_cols).to(self.col.dtype), part.value[at]

    def to_dense(self) -> Tensor:
        """Returns the matrix as a dense tensor; duplicates are summed."""
        dense = torch.zeros(self.shape, dtype=self.value.dtype, device=self.device)
        dense.index_put_((self.row_index(), self.col.long()), self.value, accumulate=True)
        return dense

    @cached_property
    def tensor(self) -> Tensor:
        """Returns a `torch.sparse_csr` tensor that shares this memory."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
            return torch.sparse_csr_tensor(self.rowptr, self.col, self.value, self.shape, check_invariants=False)


# a name for matrices that hold a normalized adjacency
Adjacency = Csr


def to_tensor(array: np.ndarray) -> Tensor:
    """Converts an array to a tensor; copies only what torch cannot share.

    These are arrays in foreign byte order, of long double or unsigned types, and read-only arrays.
    """
    dtype = array.dtype.newbyteorder("=")
    if array.dtype.kind == "u":
        dtype = np.dtype(np.int64)
    elif array.dtype.kind == "f" and array.dtype.itemsize > 8:
        dtype = np.dtype(np.float64)
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.require(array, dtype, ["C", "W"]))


def find_device(name: torch.device | str) -> torch.device:
    """Returns the device with its index: `cuda` becomes `cuda:0`, or the current device."""
    return torch.empty(0, device=name).device


def row_chunks(rowptr: Tensor) -> Iterator[tuple[int, int]]:
    """Yields ranges of rows, `start` to `stop`, with a few million stored values each and at least one row."""
    start, num_rows, rowptr = 0, len(rowptr) - 1, rowptr.long()
    while start < num_rows:
        end = torch.searchsorted(rowptr, int(rowptr[start]) + _ENTRIES_AT_ONCE, right=True)
        stop = min(max(int(end) - 1, start + 1), num_rows)
        yield start, stop
        start = stop


def index_dtype(*sizes: int) -> torch.dtype:
    """Returns the smallest index type that can represent all `sizes`."""
    return torch.int32 if max(sizes) <= _INT32_MAX else torch.int64


def _rowptr(sorted_rows: Tensor, num_rows: int) -> Tensor:
    # `bincount` would synchronize with the device.
    rows = torch.arange(num_rows + 1, dtype=sorted_rows.dtype, device=sorted_rows.device)
    return torch.searchsorted(sorted_rows.contiguous(), rows)
