import math

import torch

from lazygnn.loader.draws import column_squares, draw
from tests.helpers import random_matrix


def test_indices_are_drawn_in_proportion_to_their_weights() -> None:
    """Each of 4 shares of 20,000 draws is within 5 standard deviations; a weight of zero is never drawn."""
    weight, count = torch.tensor([0.0, 3.0, 1.0, 0.0, 4.0, 0.0], dtype=torch.float64), 20_000
    drawn = draw(weight.cumsum(0), count, torch.Generator().manual_seed(0))
    share, found = weight / weight.sum(), torch.bincount(drawn, minlength=6) / count
    assert bool(((found - share).abs() <= 5 * (share * (1 - share) / count).sqrt()).all())


def test_draws_are_independent() -> None:
    """Pairs of draws are equal as often as chance has it, within 5 standard deviations."""
    drawn = draw(torch.ones(4, dtype=torch.float64).cumsum(0), 8000, torch.Generator().manual_seed(0)).view(2, -1)
    equal = (drawn[0] == drawn[1]).double().mean()
    assert abs(float(equal) - 1 / 4) <= 5 * math.sqrt(1 / 4 * 3 / 4 / 4000)


def test_squares_of_columns() -> None:
    matrix = random_matrix(7, 5)
    expected = matrix.to_dense().square().sum(dim=0)
    torch.testing.assert_close(column_squares(matrix.value, matrix.col, 5), expected)
