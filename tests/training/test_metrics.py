import itertools

import pytest
import torch
from torch import Tensor

from lazygnn.errors import ConfigError, GraphError
from lazygnn.task import Task
from lazygnn.training.metrics import find_metric, score

SINGLE, MULTI, NUMBERS = Task("single-label", 3), Task("multi-label", 2), Task("regression", 2)


def measure(name: str, task: Task, logits: Tensor, y: Tensor) -> float:
    return find_metric(name, task)[1](logits, y)


def area(scores: list[float], labels: list[int]) -> float:
    """Returns the share of pairs of a positive and a negative node in the right order; ties count half."""
    positive = [score for score, label in zip(scores, labels, strict=True) if label]
    negative = [score for score, label in zip(scores, labels, strict=True) if not label]
    pairs = list(itertools.product(positive, negative))
    return sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs) / len(pairs)


def test_accuracy_is_the_share_of_correct_labels() -> None:
    logits = torch.tensor([[0.1, 2.0, 0.0], [3.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert measure("accuracy", SINGLE, logits, torch.tensor([1, 2, 2])) == 2 / 3


def test_micro_f1_counts_over_all_labels() -> None:
    logits = torch.tensor([[2.0, -1.0], [1.0, -1.0], [-3.0, 0.5]])
    y = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    # three true positives and one false negative; the mean over the labels would be (1 + 2 / 3) / 2 = 5 / 6
    assert measure("micro-f1", MULTI, logits, y) == pytest.approx(6 / 7)


def test_roc_auc_is_the_mean_share_of_ordered_pairs() -> None:
    logits = torch.tensor([[0.3, -1.0], [0.1, 0.0], [-0.2, 2.0], [-0.5, 0.0]])
    y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    expected = [area(logits[:, column].tolist(), y[:, column].int().tolist()) for column in (0, 1)]
    assert expected == [0.75, 0.875]
    assert measure("roc-auc", MULTI, logits, y) == pytest.approx(sum(expected) / 2)


def test_roc_auc_leaves_out_labels_that_all_nodes_have_or_none() -> None:
    logits = torch.tensor([[0.3, 1.0, 0.0], [0.1, 0.0, 1.0], [-0.2, 2.0, 0.5]])
    y = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    assert measure("roc-auc", Task("multi-label", 3), logits, y) == pytest.approx(0.5)
    with pytest.raises(GraphError, match=r"`roc-auc` needs a label that some nodes of a split have and some do not"):
        measure("roc-auc", Task("multi-label", 3), logits[:, 1:], y[:, 1:])


def test_a_single_column_of_labels_can_be_scored() -> None:
    logits, y = torch.tensor([[1.0], [2.0], [-1.0]]), torch.tensor([[1.0], [0.0], [1.0]])
    assert measure("micro-f1", Task("multi-label", 1), logits, y) == pytest.approx(0.5)
    assert measure("roc-auc", Task("multi-label", 1), logits, y) == 0


def test_r2_is_the_mean_share_of_variance_explained() -> None:
    logits = torch.tensor([[1.0, 0.0], [2.0, 1.0], [4.0, 0.0]])
    y = torch.tensor([[1.0, 0.0], [2.0, 2.0], [3.0, 1.0]])
    # residuals 1 of 2 and 2 of 2
    assert measure("r2", NUMBERS, logits, y) == pytest.approx((0.5 + 0.0) / 2)
    assert measure("r2", Task("regression", 1), y[:, :1], y[:, :1]) == 1
    with pytest.raises(GraphError, match=r"`r2` needs at least two nodes in every split, got 1; add nodes or drop the"):
        measure("r2", NUMBERS, logits[:1], y[:1])


def test_auto_is_the_first_metric_of_the_task() -> None:
    assert [find_metric("auto", task)[0] for task in (SINGLE, MULTI, NUMBERS)] == ["accuracy", "micro-f1", "r2"]


@pytest.mark.parametrize(
    ("name", "task", "message"),
    [
        ("r2", SINGLE, r"metric `r2` does not fit a single-label task; choose one of: auto, accuracy"),
        ("acuracy", MULTI, r"metric `acuracy` does not fit a multi-label task; choose one of: auto, micro-f1, roc-auc"),
        ("accuracy", NUMBERS, r"metric `accuracy` does not fit a regression task; choose one of: auto, r2"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(name: str, task: Task, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_metric(name, task)


def test_every_split_is_scored_on_its_own_nodes() -> None:
    logits = torch.eye(3)
    y = torch.tensor([0, 0, 2])
    masks = {"train": torch.tensor([True, False, False]), "val": torch.tensor([False, True, True])}
    assert score(find_metric("auto", SINGLE)[1], logits, y, masks) == {"train": 1.0, "val": 0.5}


def test_micro_f1_weighs_a_frequent_label_by_its_count() -> None:
    """Uses an example in which micro F1 differs from the mean F1 over labels and over nodes."""
    logits = torch.tensor([[1.0, -1.0], [1.0, -1.0], [1.0, -1.0], [1.0, 1.0]])
    y = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])
    # first label: 4 true positives; second: 1 false positive, 1 false negative
    macro, over_nodes = (1 + 0) / 2, (1 + 1 + 2 / 3 + 2 / 3) / 4
    micro = 2 * 4 / (2 * 4 + 1 + 1)
    assert len({round(value, 3) for value in (micro, macro, over_nodes)}) == 3
    assert measure("micro-f1", MULTI, logits, y) == pytest.approx(micro)
