import math

import pytest
import torch
from torch import Tensor

from lazygnn.errors import ConfigError
from lazygnn.task import Task, log_odds_of

LOGITS = torch.tensor([[1.0, -1.0], [0.5, 2.0]], dtype=torch.float64)


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value))


def test_the_loss_of_one_label_is_the_cross_entropy() -> None:
    loss = Task("single-label", 2).loss(LOGITS, torch.tensor([0, 1]))
    assert loss.tolist() == pytest.approx([-log_sigmoid(2.0), -log_sigmoid(1.5)], abs=1e-12)


def test_the_loss_of_several_labels_is_their_mean_binary_cross_entropy() -> None:
    loss = Task("multi-label", 2).loss(LOGITS, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    expected = [-(log_sigmoid(1.0) + log_sigmoid(1.0)) / 2, -(log_sigmoid(-0.5) + log_sigmoid(2.0)) / 2]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)


def test_the_loss_of_numbers_is_their_mean_squared_error() -> None:
    loss = Task("regression", 2).loss(LOGITS, torch.tensor([[0.0, 0.0], [0.5, 4.0]]))
    assert loss.tolist() == pytest.approx([1.0, 2.0], abs=1e-12)


@pytest.mark.parametrize(
    ("task", "y"),
    [
        (Task("single-label", 2), torch.tensor([0, -1])),
        (Task("multi-label", 2), torch.tensor([[1.0, 0.0], [-1.0, -1.0]])),
        (Task("regression", 2), torch.tensor([[1.0, 0.0], [math.nan, math.nan]])),
    ],
    ids=lambda value: value.kind if isinstance(value, Task) else "",
)
def test_a_row_without_label_and_weight_changes_neither_loss_nor_gradient(task: Task, y: Tensor) -> None:
    logits = LOGITS.clone().requires_grad_()
    assert task.labeled(y).tolist() == [True, False]
    loss = (torch.tensor([1.0, 0.0]) * task.loss(logits, y)).sum()
    loss.backward()
    assert float(loss.detach()) == float(task.loss(LOGITS[:1], y[:1])[0])
    assert logits.grad is not None
    assert logits.grad[1].tolist() == [0, 0]
    assert logits.grad[0].abs().sum() > 0


def test_a_partly_known_row_is_not_labeled() -> None:
    assert not Task("multi-label", 2).labeled(torch.tensor([[1.0, -1.0]])).any()
    assert not Task("regression", 2).labeled(torch.tensor([[1.0, math.nan]])).any()
    assert Task("multi-label", 2).unknown(torch.tensor([[1.0, -1.0]])).tolist() == [[False, True]]
    assert Task("regression", 2).unknown(torch.tensor([[1.0, math.nan]])).tolist() == [[False, True]]


def test_logits_become_probabilities_and_numbers_stay() -> None:
    single = Task("single-label", 2).activate(LOGITS)
    assert single.sum(dim=1).tolist() == pytest.approx([1, 1])
    assert single[:, 0].tolist() == pytest.approx([math.exp(log_sigmoid(2.0)), math.exp(log_sigmoid(-1.5))])
    assert float(Task("multi-label", 2).activate(LOGITS)[1, 1]) == pytest.approx(math.exp(log_sigmoid(2.0)))
    assert torch.equal(Task("regression", 2).activate(LOGITS), LOGITS)


def test_the_first_metric_of_a_task_is_its_default() -> None:
    several = ("micro-f1", "macro-f1", "roc-auc", "average-precision")
    assert Task("single-label", 2).metrics == ("accuracy", "balanced-accuracy", *several)
    assert Task("multi-label", 2).metrics == several
    assert Task("regression", 2).metrics == ("r2", "mae", "rmse")


def test_labels_above_the_threshold_are_predicted() -> None:
    logits = torch.tensor([[0.0, -0.5], [-2.0, 3.0]])
    assert Task("multi-label", 2).predict_labels(logits).tolist() == [[False, False], [False, True]]
    lower = Task("multi-label", 2, threshold=0.2)
    assert lower.predict_labels(logits).tolist() == [[True, True], [False, True]]
    assert log_odds_of(0.5) == 0


@pytest.mark.parametrize(
    ("kind", "columns", "remedy"),
    [
        ("single-label", 4, "or make the graph with `num_classes=4` if it lacks some"),
        ("single-label", 2, "`graph.task.num_outputs` columns"),
        ("regression", 4, "`graph.task.num_outputs` columns"),
    ],
)
def test_classes_that_a_graph_lacks_have_a_remedy(kind: str, columns: int, remedy: str) -> None:
    with pytest.raises(ConfigError) as stop:
        Task(kind, 3).check(torch.zeros(5, columns))  # type: ignore[arg-type]
    assert str(stop.value).endswith(remedy)
