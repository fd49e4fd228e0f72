import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional as F

from lazygnn.config import TrainerOptions
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader
from lazygnn.models import MLP, Decoupled
from lazygnn.propagation import NoPropagation
from lazygnn.training import Trainer, evaluate
from lazygnn.training.balance import balanced
from tests.helpers import random_rows

CPU = torch.device("cpu")


def graph_of(y: np.ndarray, num_train: int, x: np.ndarray | None = None, **more: object) -> Graph:
    at = np.arange(len(y))
    x = np.ones((len(y), 2)) if x is None else x
    labeled = np.atleast_2d(y.T).min(axis=0) >= 0
    given = {"train_mask": at < num_train, "test_mask": (at >= num_train) & labeled}
    return Graph.from_edges(np.stack((at, at)), x, y, **given, **more)  # type: ignore[arg-type]


def test_weights_of_classes_are_those_of_scikit_learn_on_the_training_nodes() -> None:
    y = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2, 2])
    task = balanced(graph_of(y, 7), CPU)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=y[:7])
    assert task.present.tolist() == pytest.approx(expected)
    assert float(task.present[y[:7]].mean()) == pytest.approx(1)


def test_a_class_without_training_nodes_does_not_count() -> None:
    task = balanced(graph_of(np.array([0, 0, 0, 2, 1]), 4), CPU)
    assert task.present.tolist() == pytest.approx([4 / (2 * 3), 0, 4 / 2])


def test_the_loss_of_a_row_is_that_of_its_class() -> None:
    y = torch.tensor([0, 0, 0, 1, -1])
    task = balanced(graph_of(y.numpy(), 4), CPU)
    logits = random_rows(5, 2, 0)
    plain = F.cross_entropy(logits[:4], y[:4], reduction="none")
    weight = torch.tensor([2 / 3, 2 / 3, 2 / 3, 2.0], dtype=torch.float64)
    torch.testing.assert_close(task.loss(logits, y)[:4], weight * plain, rtol=1e-6, atol=0)
    # rows without a label are finite, since the caller weighs them by zero
    assert task.loss(logits, y).isfinite().all()


def test_presence_and_absence_of_a_label_count_alike() -> None:
    y = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    task = balanced(graph_of(y.numpy(), 4, task="multi-label"), CPU)
    for column in range(2):
        expected = compute_class_weight("balanced", classes=np.arange(2), y=y[:, column].numpy())
        assert [float(task.absent[column]), float(task.present[column])] == pytest.approx(list(expected))
    # all nodes have the last label
    assert (float(task.absent[2]), float(task.present[2])) == (0, 1)
    logits = random_rows(4, 3, 0, torch.float32)
    plain = F.binary_cross_entropy_with_logits(logits, y, reduction="none")
    weight = torch.where(y > 0, task.present, task.absent)
    torch.testing.assert_close(task.loss(logits, y), (weight * plain).mean(dim=1))


def test_numbers_have_no_classes() -> None:
    graph = graph_of(np.array([0.5, 1.0, 2.0]), 2)
    with pytest.raises(ConfigError, match="`class_weight` is `balanced`, but a regression has no classes; remove"):
        balanced(graph, CPU)


def test_balanced_training_finds_a_rare_class() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.05).astype(np.int64)
    # the classes overlap, so that a plain loss predicts the frequent one almost always
    graph = graph_of(y, 300, rng.normal(size=(600, 2)) + y[:, None])
    found = {}
    for weight in ("none", "balanced"):
        torch.manual_seed(0)
        model = Decoupled(MLP(2, 4, 2, mlp_layers=1), NoPropagation())
        options = TrainerOptions(epochs=60, lr=0.1, class_weight=weight)
        Trainer(model, FullLoader(graph, 0), graph, options).fit()
        found[weight] = evaluate(model, graph, "balanced-accuracy")["test"]
    assert found["none"] < 0.6
    assert found["balanced"] > 0.7
