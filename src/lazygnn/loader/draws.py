"""Random draws that the samplers share: without a loop, from a generator, on its device.

`N` candidates, `R` rows of a matrix, `E` its entries.
"""

import torch
from torch import Tensor

# bits of the random number that orders the entries of a row; the row's index takes the bits above
_BITS = 31


def draw(cumulative: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draws indices with replacement, in proportion to their weights.

    Args:
        cumulative: Sums of the weights up to each index, in float64, [N].
        count: Number of draws.
        generator: Source of the random numbers.
    """
    random = torch.rand(count, dtype=torch.float64, generator=generator, device=cumulative.device)
    # an index is drawn if the number is at least the sum before it and below the sum with it
    return torch.searchsorted(cumulative, random * cumulative[-1], right=True).clamp_(max=len(cumulative) - 1)


def column_squares(value: Tensor, col: Tensor, num_cols: int) -> Tensor:
    """Returns the squared length of every column of a sparse matrix, in float64, [N]."""
    squares = torch.zeros(num_cols, dtype=torch.float64, device=value.device)
    return squares.index_add_(0, col.long(), value.double().square())


def draw_distinct(weight: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draws different indices one after another, in proportion to the weights of those that are left.

    Returns all indices with a weight above zero if there are no more than `count`. Each index waits for a random time
    with a rate of its weight, and those with the shortest times are drawn, which has the same distribution.
    """
    count = min(count, int((weight > 0).sum()))
    time = torch.empty(len(weight), dtype=torch.float64, device=weight.device).exponential_(generator=generator)
    return (time / weight).topk(count, largest=False).indices


def draw_in_rows(row: Tensor, count: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Draws at most `most` entries of every row, uniformly and without replacement; all rows are drawn at once.

    Gives every entry a random number and keeps the smallest ones of each row, with one sort for all rows.

    Args:
        row: The row of each entry, in rising order, [E].
        count: Entries of each row, [R].
        most: Entries to keep.
        generator: Source of the random numbers.

    Returns:
        Indices of the entries, sorted by row.
    """
    if len(row) == 0 or most >= int(count.max()):
        return torch.arange(len(row), device=row.device)
    random = torch.randint(1 << _BITS, (len(row),), generator=generator, device=row.device)
    order = ((row << _BITS) + random).argsort()
    # the sort keeps the rows in order, so the rank of an entry in its row is its distance from the row's start
    start = count.cumsum(0) - count
    return order[torch.arange(len(row), device=row.device) - start[row] < most]


def draw_systematic(probability: Tensor, generator: torch.Generator) -> Tensor:
    """Draws different indices, each with its probability, as many as the probabilities sum to.

    Lays the probabilities end to end in a random order and takes every index that has a mark, where marks are one apart
    and start at a random place below 1.

    Args:
        probability: In [0, 1], with a sum that is a whole number, [N].
        generator: Source of the random numbers.

    Returns:
        Indices in rising order.
    """
    order = torch.randperm(len(probability), generator=generator, device=probability.device)
    ends = probability[order].double().cumsum(0)
    start = torch.rand(1, dtype=torch.float64, generator=generator, device=ends.device)
    marks = start + torch.arange(round(float(ends[-1])), device=ends.device)
    drawn: Tensor = order[torch.searchsorted(ends, marks, right=True).clamp_(max=len(ends) - 1)].unique()
    return drawn
