"""The order in which a product processes the rows of a sparse pattern, and which parts of long rows are summed first.

A long row would keep one program busy while all others are done. Its entries are therefore cut into pieces at multiples
of `piece_size`. Pieces that belong to a single row are summed first, by other programs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lazygnn.ops.csr import Csr, index_dtype

# Rows are sorted by length within windows of this many rows: large enough to find rows of equal length, small enough
# that adjacent rows still share neighbors in the cache.
WINDOW = 4096


@dataclass(frozen=True)
class Plan:
    """How a product processes a pattern."""

    order: Tensor  # [R], rows by length within windows, the longest first
    whole: Tensor | None  # [E // piece size], pieces within a single row, then all others; None if there are no pieces
    num_whole: Tensor | None  # [], number of pieces within a single row


def plan_of(matrix: Csr) -> Plan:
    """Returns the plan of a pattern; computes it once, without synchronizing with the device."""
    if "plan" not in matrix.derived:
        matrix.derived["plan"] = _make_plan(matrix.rowptr, len(matrix.col), piece_size(matrix))
    plan: Plan = matrix.derived["plan"]
    return plan


def piece_size(matrix: Csr) -> int:
    """Returns the number of entries in a piece, a power of two.

    A program processes fewer than two pieces of a row by itself, which must not take longer than all other work.
    """
    return 256 if len(matrix.col) >= 1 << 25 else 64


def _make_plan(rowptr: Tensor, num_entries: int, size: int) -> Plan:
    start, stop, num_rows = rowptr[:-1], rowptr[1:], len(rowptr) - 1
    # Without its whole pieces, a row is shorter than two pieces.
    length = stop - start - (stop // size + -start // size).clamp_(min=0) * size
    window = torch.arange(num_rows, dtype=rowptr.dtype, device=rowptr.device) // WINDOW
    order = torch.argsort((window + 1) * (2 * size) - length, stable=True).to(index_dtype(num_rows))
    if num_entries < size:
        return Plan(order, None, None)
    bounds = torch.arange(num_entries // size + 1, dtype=rowptr.dtype, device=rowptr.device) * size
    # A piece is whole if no row starts after its first entry and before its end.
    whole = torch.searchsorted(rowptr, bounds[:-1], right=True) == torch.searchsorted(rowptr, bounds[1:])
    pieces = torch.argsort((~whole).to(torch.int8), stable=True).to(index_dtype(len(whole)))
    return Plan(order, pieces, whole.sum())
