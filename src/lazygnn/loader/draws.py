"""Random draws that the samplers share: without a loop, from a generator, on its device.

`N` candidates.
"""

import torch
from torch import Tensor


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
