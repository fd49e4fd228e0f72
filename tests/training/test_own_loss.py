import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.config import TrainerOptions
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader
from lazygnn.models import GCN
from lazygnn.task import Task
from lazygnn.training import Trainer
from lazygnn.training.own_loss import RowLoss, with_loss
from tests.helpers import random_rows


def trained(graph: Graph, loss: RowLoss | None, **values: Any) -> Trainer:
    torch.manual_seed(0)
    model = GCN(3, 8, 3, num_layers=2)
    options = TrainerOptions(epochs=3, **values)
    trainer = Trainer(model, FullLoader(graph, 2), graph, options, loss=loss)
    trainer.run()
    return trainer


def smoothed(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs, y, reduction="none", label_smoothing=0.2)


def test_the_loss_of_the_task_given_by_hand_trains_the_same_weights(block_graph: Graph) -> None:
    plain = trained(block_graph, None).model.state_dict()
    same = trained(block_graph, lambda outputs, y: F.cross_entropy(outputs, y, reduction="none")).model.state_dict()
    other = trained(block_graph, smoothed).model.state_dict()
    assert all(torch.equal(same[name], value) for name, value in plain.items())
    assert not all(torch.equal(other[name], value) for name, value in plain.items())


def test_nodes_without_a_label_do_not_count(block_graph: Graph) -> None:
    y = torch.where(block_graph.masks["train"], block_graph.y, -1)
    masks = {"train": block_graph.masks["train"]}
    known, unknown = (replace(block_graph, y=labels, masks=masks) for labels in (block_graph.y, y))
    first, second = (trained(graph, smoothed).model.state_dict() for graph in (known, unknown))
    assert all(torch.equal(second[name], value) for name, value in first.items())


@pytest.mark.parametrize(
    ("task", "unknown"),
    [(Task("regression", 2), math.nan), (Task("multi-label", 2), -1.0)],
    ids=["regression", "multi-label"],
)
def test_unknown_targets_are_zero(task: Task, unknown: float) -> None:
    y = torch.tensor([[1.0, 0.0], [unknown, unknown]])
    found = with_loss(task, lambda outputs, targets: (outputs - targets).abs().sum(dim=1)).loss(torch.zeros(2, 2), y)
    assert found.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda outputs, y: F.cross_entropy(outputs, y), r"`loss` returns shape \(\) for 4 rows; return one number"),
        (
            lambda outputs, y: float(len(outputs) - len(y)),
            r"`loss\(outputs, y\)` is 0.0, of type float; return a tensor",
        ),
    ],
    ids=["a-mean", "not-a-tensor"],
)
def test_a_loss_that_is_not_one_number_per_row_is_refused(loss: RowLoss, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_loss(Task("single-label", 3), loss).loss(random_rows(4, 3, 0), torch.zeros(4, dtype=torch.long))


def test_a_loss_is_a_function(block_graph: Graph) -> None:
    name: Any = "focal"
    with pytest.raises(ConfigError, match=r"`loss` is 'focal', of type str; give a function of outputs and targets"):
        trained(block_graph, name)


def test_class_weights_are_refused_beside_an_own_loss(block_graph: Graph) -> None:
    with pytest.raises(ConfigError, match=r"`class_weight=balanced` has no effect on a `loss` of your own"):
        trained(block_graph, smoothed, class_weight="balanced")
