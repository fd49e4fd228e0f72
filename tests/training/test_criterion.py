"""The loss at its best temperature, beside the score."""

import math

import pytest
import torch
from torch import Tensor

from lazygnn.errors import DivergenceError
from lazygnn.graph import Graph
from lazygnn.task import Task, TaskKind
from lazygnn.training.balance import balanced
from lazygnn.training.criterion import TEMPERATURES, calibrated_loss, counts_loss, tempered_losses
from tests.helpers import random_rows

CLASSES, LABELS = Task("single-label", 4), Task("multi-label", 4)
LOGITS = 3 * random_rows(50, 4, 0)
CLASS_TARGETS = torch.arange(50) % 4
LABEL_TARGETS = (random_rows(50, 4, 1) > 0).double()


def calibrated(task: Task, logits: Tensor, y: Tensor) -> float:
    return calibrated_loss(tempered_losses(task, logits, y))


def test_losses_are_those_of_the_divided_outputs() -> None:
    *losses, num_labels = tempered_losses(CLASSES, LOGITS, CLASS_TARGETS)
    assert num_labels == 50
    for temperature, found in zip(TEMPERATURES, losses, strict=True):
        shares = (LOGITS / temperature).exp()
        shares = shares / shares.sum(dim=1, keepdim=True)
        expected = -sum(math.log(shares[node, kind]) for node, kind in enumerate(CLASS_TARGETS))
        assert float(found) == pytest.approx(expected, rel=1e-12)
    *losses, num_labels = tempered_losses(LABELS, LOGITS, LABEL_TARGETS)
    assert num_labels == LABEL_TARGETS.count_nonzero() != LABEL_TARGETS.numel()
    for temperature, found in zip(TEMPERATURES, losses, strict=True):
        present = 1 / (1 + (-LOGITS / temperature).exp())
        each = LABEL_TARGETS * present.log() + (1 - LABEL_TARGETS) * (1 - present).log()
        assert float(found) == pytest.approx(-float(each.sum()), rel=1e-9)


def test_a_loss_is_that_of_a_label_that_a_node_has() -> None:
    """Both nodes together have three labels, and three are absent."""
    y = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
    logits = torch.full((2, 3), math.log(3))
    # at a temperature of 1, a label is present with probability 3/4
    present, absent = -math.log(0.75), -math.log(0.25)
    expected = (3 * present + 3 * absent) / 3
    sums = tempered_losses(Task("multi-label", 3), logits, y)
    assert float(sums[2]) / float(sums[-1]) == pytest.approx(expected, rel=1e-6)
    assert calibrated_loss(sums) < expected
    # labels that no node has make no mean
    assert calibrated_loss(tempered_losses(Task("multi-label", 3), -logits, 0 * y)) > 0


@pytest.mark.parametrize(("task", "y"), [(CLASSES, CLASS_TARGETS), (LABELS, LABEL_TARGETS)], ids=["classes", "labels"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_losses_of_outputs_in_other_formats_are_added_up_in_float64(task: Task, y: Tensor, dtype: torch.dtype) -> None:
    rounded = LOGITS.to(dtype)
    found = tempered_losses(task, rounded, y)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, tempered_losses(task, rounded.double(), y), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("task", "y"), [(CLASSES, CLASS_TARGETS), (LABELS, LABEL_TARGETS)], ids=["classes", "labels"])
def test_losses_of_shares_of_the_nodes_add_up(task: Task, y: Tensor) -> None:
    parts = [tempered_losses(task, LOGITS[part], y[part]) for part in (slice(7), slice(7, 7), slice(7, 50))]
    torch.testing.assert_close(sum(parts), tempered_losses(task, LOGITS, y), rtol=1e-12, atol=0)


def test_the_calibrated_loss_is_near_its_optimum() -> None:
    """Three of four nodes are right by the same margin: the best one is log 3, with the entropy of 3/4 as loss."""
    y = torch.zeros(4, dtype=torch.long)
    logits = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]], dtype=torch.float64)
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    for margin in (0.7, 1.0, 2.0, 5.0):
        found = calibrated(Task("single-label", 2), margin * logits, y)
        assert entropy <= found < 1.01 * entropy
    # as it is, a confident model has a loss of its own
    assert float(tempered_losses(Task("single-label", 2), 5 * logits, y)[2]) / 4 > 2 * entropy


@pytest.mark.parametrize("task", [CLASSES, LABELS], ids=["classes", "labels"])
def test_confidence_does_not_change_the_calibrated_loss(task: Task) -> None:
    y = CLASS_TARGETS if task is CLASSES else LABEL_TARGETS
    # outputs that know something, so that the best temperature is among those that are tried
    known = 2 * (torch.eye(4, dtype=torch.float64)[CLASS_TARGETS] if task is CLASSES else 2 * LABEL_TARGETS - 1)
    logits = known + (LOGITS / 2 if task is CLASSES else LOGITS)
    expected = calibrated(task, logits, y)
    untempered = tempered_losses(task, logits, y)[TEMPERATURES.index(1.0)]
    assert expected <= float(untempered) / float(len(y) if task is CLASSES else y.sum())
    for factor in (2**-0.5, 2**0.5, 2):
        assert calibrated(task, factor * logits, y) == pytest.approx(expected, rel=1e-12)


def test_weights_of_classes_count(block_graph: Graph) -> None:
    task = balanced(block_graph, torch.device("cpu"))
    logits = random_rows(60, 3, 2)
    weights = task.present.double()[block_graph.y]
    for temperature, found in zip(TEMPERATURES, tempered_losses(task, logits, block_graph.y)[:-1], strict=True):
        expected = (weights * block_graph.task.loss(logits / temperature, block_graph.y)).sum()
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("kind", "counts"), [("single-label", True), ("multi-label", True), ("regression", False)])
def test_a_loss_counts_where_outputs_have_a_temperature(kind: TaskKind, counts: bool) -> None:
    assert counts_loss("score-loss", Task(kind, 2)) is counts
    assert not counts_loss("score", Task(kind, 2))


def test_outputs_beyond_the_largest_number_at_a_low_temperature_have_a_loss() -> None:
    y = torch.tensor([0, 1])
    huge = torch.tensor([[2e38, 0.0], [1e38, 0.0]])
    losses = tempered_losses(Task("single-label", 2), huge, y)
    assert not losses.isfinite().all()
    # the second node is wrong by 1e38, at the highest temperature
    assert calibrated_loss(losses) == pytest.approx(1e38 / 2 / TEMPERATURES[-1])


def test_a_loss_that_is_not_finite_is_a_divergence() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(DivergenceError, match="the loss on validation is not finite; lower `lr`"):
            calibrated_loss(torch.tensor([value] * len(TEMPERATURES) + [3.0]))
