"""The threshold of several labels with the best F1 score."""

import pytest
import torch
from sklearn.metrics import f1_score

from lazygnn.task import Task, log_odds_of
from lazygnn.training.threshold import THRESHOLDS, choose_threshold
from tests.helpers import random_rows


@pytest.mark.parametrize("name", ["micro-f1", "macro-f1"])
@pytest.mark.parametrize("shift", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_no_threshold_has_a_better_score(name: str, shift: float, dtype: torch.dtype) -> None:
    y = (random_rows(300, 5, 1) > 1).double()
    logits = (random_rows(300, 5, 0) + y + shift).to(dtype)

    def score(threshold: float) -> float:
        predicted = Task("multi-label", 5, threshold=threshold).predict_labels(logits)
        return float(f1_score(y > 0, predicted, average=name.removesuffix("-f1"), zero_division=0))

    best = max(score(threshold) for threshold in THRESHOLDS)
    assert score(choose_threshold(name, logits, y)) == pytest.approx(best, abs=1e-12)
    assert best > score(0.5) or shift == 0


def test_a_label_at_the_threshold_is_not_predicted() -> None:
    """Only a threshold of 0.3 tells the two nodes apart: the first has exactly that probability."""
    logits = torch.tensor([[log_odds_of(0.3)], [log_odds_of(0.35)]])
    assert choose_threshold("micro-f1", logits, torch.tensor([[0.0], [1.0]])) == 0.3


def test_of_equal_thresholds_the_one_nearest_to_one_half_is_taken() -> None:
    y = torch.tensor([[1.0], [0.0]])
    assert choose_threshold("micro-f1", torch.tensor([[9.0], [-9.0]]), y) == 0.5
    assert choose_threshold("micro-f1", torch.tensor([[-0.5], [-9.0]]), y) == 0.35
    # no label to find, or none that can be found
    assert choose_threshold("micro-f1", torch.zeros(2, 1), torch.zeros(2, 1)) == 0.5
    assert choose_threshold("micro-f1", torch.full((2, 1), -9.0), y) == 0.5


def test_a_metric_without_a_threshold_takes_that_of_micro_f1() -> None:
    y = (random_rows(300, 5, 1) > 1).double()
    logits = random_rows(300, 5, 0) + y - 2
    assert choose_threshold("roc-auc", logits, y) == choose_threshold("micro-f1", logits, y) != 0.5


def test_with_calibrated_probabilities_it_is_half_of_the_score() -> None:
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(200_000, 1, generator=generator, dtype=torch.float64) ** 3
    y = (torch.rand(probability.shape, generator=generator, dtype=torch.float64) < probability).double()
    found = choose_threshold("micro-f1", probability.logit(), y)
    predicted = probability > found
    best = float(2 * (predicted & (y > 0)).sum() / (predicted.sum() + y.sum()))
    # the thresholds are 0.05 apart
    assert abs(found - best / 2) <= 0.05
    assert found < 0.4
