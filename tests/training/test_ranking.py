import itertools
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from lazygnn.training.ranking import average_precision, log_odds, roc_auc
from tests.helpers import random_rows

# few distinct scores, so that there are ties
RANKED = st.lists(st.tuples(st.sampled_from([-3.0, -0.5, -0.0, 0.0, 0.5, 3.0]), st.booleans()), min_size=2, max_size=30)
BOTH = RANKED.filter(lambda rows: len({positive for _, positive in rows}) == 2)


def ordered_pairs(scores: list[float], positive: list[bool]) -> float:
    """Returns the share of pairs of a positive and a negative node in the right order; ties count half."""
    high = [score for score, wanted in zip(scores, positive, strict=True) if wanted]
    low = [score for score, wanted in zip(scores, positive, strict=True) if not wanted]
    points = [2 * (p > n) + (p == n) for p, n in itertools.product(high, low)]
    return float(Fraction(sum(points), 2 * len(points)))


@settings(max_examples=100, deadline=None)
@given(rows=BOTH)
def test_areas_equal_those_of_scikit_learn_with_ties(rows: list[tuple[float, bool]]) -> None:
    scores, positive = (list(column) for column in zip(*rows, strict=True))
    given, wanted = torch.tensor(scores), torch.tensor(positive)
    assert roc_auc(given, wanted) == ordered_pairs(scores, positive)
    assert roc_auc(given, wanted) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)
    assert average_precision(given, wanted) == pytest.approx(average_precision_score(positive, scores), abs=1e-12)


def test_areas_equal_those_of_scikit_learn_without_ties() -> None:
    scores, positive = random_rows(5000, 1, 0)[:, 0], random_rows(5000, 1, 1)[:, 0] > 0.5
    assert roc_auc(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)
    assert average_precision(scores, positive) == pytest.approx(average_precision_score(positive, scores), abs=1e-12)


def test_equal_scores_are_no_better_than_chance() -> None:
    scores, positive = torch.zeros(5), torch.tensor([True, False, False, True, False])
    assert roc_auc(scores, positive) == 0.5
    assert average_precision(scores, positive) == 2 / 5


def test_the_order_of_the_nodes_does_not_matter() -> None:
    scores, positive = random_rows(200, 1, 0)[:, 0].round(decimals=1), random_rows(200, 1, 1)[:, 0] > 0
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    for area in (roc_auc, average_precision):
        assert area(scores[order], positive[order]) == area(scores, positive)


@settings(max_examples=100, deadline=None)
@given(
    rows=st.integers(3, 6).flatmap(
        lambda width: st.lists(
            st.lists(st.integers(-3000, 3000) | st.integers(-2, 2), min_size=width, max_size=width),
            min_size=1,
            max_size=5,
        )
    )
)
def test_log_odds_have_full_precision_at_any_probability(rows: list[list[int]]) -> None:
    """Uses powers of two as exponentials of logits, so that the odds are exact fractions."""
    logits = torch.tensor(rows, dtype=torch.float64) * math.log(2)
    for column, odds in enumerate(log_odds(logits, range(len(rows[0])))):
        for row, found in zip(rows, odds.tolist(), strict=True):
            powers = [Fraction(2) ** entry for entry in row]
            expected = powers[column] / (sum(powers) - powers[column])
            assert found == pytest.approx(math.log(expected.numerator) - math.log(expected.denominator), abs=1e-11)


def test_log_odds_of_two_classes_are_exactly_the_difference_of_logits() -> None:
    logits = torch.tensor([[1.0, 1.0 + 2**-23], [16777216.0, 0.25], [-5.0, 1e4]])
    first, second = log_odds(logits, [0, 1])
    assert second.tolist() == [2**-23, 0.25 - 16777216.0, 10005.0]
    assert torch.equal(first, -second)


@pytest.mark.parametrize("sign", [1, -1])
def test_log_odds_differ_where_probabilities_round_to_the_same(sign: int) -> None:
    logits = torch.zeros(4, 3)
    logits[:, 1] = sign * torch.tensor([100.0, 800.0, 900.0, 1e4])
    probability = logits.double().softmax(dim=-1)[:, 1]
    assert len(set(probability[1:].tolist())) == 1
    (odds,) = log_odds(logits, [1])
    assert odds.tolist() == pytest.approx((logits[:, 1].double() - math.log(2)).tolist(), abs=1e-10)


def test_log_odds_do_not_depend_on_the_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = random_rows(50, 4, 0)
    whole = torch.stack([*log_odds(logits, [3, 1])])
    probability = logits.softmax(dim=-1)[:, [3, 1]].T
    torch.testing.assert_close(whole, probability.logit(), rtol=1e-12, atol=1e-12)
    monkeypatch.setattr("lazygnn.training.ranking._ROWS", 7)
    assert torch.equal(torch.stack([*log_odds(logits, [3, 1])]), whole)
