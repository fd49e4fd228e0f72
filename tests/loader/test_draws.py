import math

import torch

from lazygnn.loader.draws import column_squares, draw, draw_distinct, draw_in_rows, draw_systematic
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


def test_different_indices_are_drawn_one_after_another() -> None:
    """Of 4,000 pairs, the first draw and the second given the first have their shares, within 5 deviations."""
    weight, generator = torch.tensor([1.0, 0.0, 2.0, 5.0], dtype=torch.float64), torch.Generator().manual_seed(0)
    pairs = torch.stack([draw_distinct(weight, 2, generator) for _ in range(4000)])
    assert bool((pairs[:, 0] != pairs[:, 1]).all())
    assert not bool((pairs == 1).any())
    for first in (0, 2, 3):
        for second in {0, 2, 3} - {first}:
            share = float(weight[first] / 8 * weight[second] / (8 - weight[first]))
            found = ((pairs[:, 0] == first) & (pairs[:, 1] == second)).double().mean()
            assert abs(float(found) - share) <= 5 * math.sqrt(share * (1 - share) / 4000)


def test_no_more_different_indices_are_drawn_than_there_are() -> None:
    drawn = draw_distinct(torch.tensor([1.0, 0.0, 2.0]), 5, torch.Generator().manual_seed(0))
    assert sorted(drawn.tolist()) == [0, 2]


def test_entries_are_drawn_in_every_row() -> None:
    count = torch.tensor([0, 5, 1, 3])
    row = torch.repeat_interleave(torch.arange(4), count)
    drawn = draw_in_rows(row, count, 2, torch.Generator().manual_seed(0))
    assert torch.equal(row[drawn], torch.tensor([1, 1, 2, 3, 3]))
    assert len(drawn.unique()) == 5
    for most in (5, 9):
        assert torch.equal(draw_in_rows(row, count, most, torch.Generator()), torch.arange(9))
    assert len(draw_in_rows(row[:0], count[:1], 2, torch.Generator())) == 0


def test_systematic_draws_have_their_probabilities_and_a_fixed_size() -> None:
    """Shares over 2,000 draws are within 5 standard deviations; a probability of 1 is drawn always, of 0 never."""
    p, generator = torch.tensor([1.0, 0.25, 0.0, 0.6, 0.15, 1.0], dtype=torch.float64), torch.Generator().manual_seed(0)
    counts = torch.zeros(6, dtype=torch.float64)
    for _ in range(2000):
        drawn = draw_systematic(p, generator)
        assert len(drawn) == 3
        counts[drawn] += 1
    assert bool(((counts / 2000 - p).abs() <= 5 * (p * (1 - p) / 2000).sqrt()).all())


def test_systematic_draws_of_equal_probabilities_reach_every_pair() -> None:
    p, generator = torch.full((6,), 1 / 3, dtype=torch.float64), torch.Generator().manual_seed(0)
    assert len({tuple(draw_systematic(p, generator).tolist()) for _ in range(400)}) == 15
