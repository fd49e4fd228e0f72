from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from lazygnn.graph import Graph
from lazygnn.training.constancy import describe_constant
from tests.helpers import random_rows


def graph_of(y: np.ndarray, *, splits: bool = True, x: Any = None, **more: object) -> Graph:
    at = np.arange(len(y))
    x = at[:, None] if x is None else x
    masks = {"train_mask": at % 2 == 0} | ({"val_mask": at % 4 == 1, "test_mask": at % 4 == 3} if splits else {})
    return Graph.from_edges(np.stack((at, at)), x, y, **masks, **more)  # type: ignore[arg-type]


def logits_of(classes: np.ndarray) -> torch.Tensor:
    return torch.eye(int(classes.max()) + 1)[torch.from_numpy(classes)]


UNEVEN = np.where(np.arange(400) % 40 < 3, 1, 0)


def test_one_class_for_all_nodes_is_constant() -> None:
    y = np.arange(400) // 4 % 2
    outputs = logits_of(y)
    outputs[:] = torch.tensor([0.1, 0.2])
    said = describe_constant(outputs, graph_of(y, class_names=("red", "blue")))
    assert said is not None
    assert said.startswith("predictions are nearly constant: class `blue` for 100.0% of the nodes, which 50.0% of them")
    assert describe_constant(outputs, graph_of(y, splits=False)) is not None
    # a share of other predictions that is not negligible
    outputs[:40] = torch.tensor([0.3, 0.2])
    assert describe_constant(outputs, graph_of(y)) is None


def test_a_rare_class_that_is_never_predicted_is_found() -> None:
    never = torch.tensor([1.0, 0.0]).expand(400, 2)
    said = describe_constant(never, graph_of(UNEVEN))
    assert said is not None
    assert "which 95.0% of them have" in said
    assert "`class_weight=balanced`" in said
    assert said.endswith("if the other classes are rare; `metric=roc-auc` judges how probabilities rank the nodes")
    # of three classes, the probability of one says less
    said = describe_constant(torch.tensor([1.0, 0.0, 0.0]).expand(400, 3), graph_of(np.where(UNEVEN > 0, 2, UNEVEN)))
    assert said is not None
    assert said.endswith("if the other classes are rare")
    assert describe_constant(logits_of(UNEVEN), graph_of(UNEVEN)) is None


def test_a_class_that_is_rarer_still_need_not_be_predicted_often() -> None:
    y = np.where(np.arange(4000) % 400 < 3, 1, 0)
    assert describe_constant(logits_of(y), graph_of(y)) is None
    assert describe_constant(torch.tensor([1.0, 0.0]).expand(4000, 2), graph_of(y)) is not None


def test_the_same_labels_for_all_nodes_are_constant() -> None:
    at = np.arange(80)
    y = np.stack((at % 3 == 0, at % 2 == 0, at >= 0), axis=1).astype(np.int64)
    graph = graph_of(y)
    said = describe_constant(torch.tensor([-1.0, -2.0, 0.5]).expand(80, 3), graph)
    assert said is not None
    assert said.startswith("predictions are nearly constant: the same 1 of 3 labels for 100.0% of the nodes, which ")
    assert describe_constant(torch.from_numpy(y) - 0.5, graph) is None


def test_numbers_without_deviation_are_constant() -> None:
    y = 1000 + 50 * random_rows(80, 2, 0).numpy()
    noise = random_rows(80, 2, 1, torch.float32)
    graph = graph_of(y)
    said = describe_constant(1000 + 0.1 * noise, graph)
    assert said is not None
    assert said.startswith("predictions are nearly constant: their deviation is 0.1")
    assert describe_constant(1000 + 5 * noise, graph) is None
    # one of two outputs that varies is enough
    assert describe_constant(1000 + torch.tensor([0.1, 5.0]) * noise, graph) is None


def test_the_remedy_fits_the_model_and_the_features() -> None:
    y = np.arange(400) % 2
    same, row = torch.tensor([1.0, 0.0]).expand(400, 2), np.array([[0.0, 2.0, 3.0]])
    for x in (np.repeat(row, 400, axis=0), sparse.csr_matrix(np.repeat(row, 400, axis=0)), sparse.csr_matrix((400, 2))):
        said = describe_constant(same, graph_of(y, x=x))
        assert said is not None
        assert said.endswith("have; all nodes have the same features, which say nothing: give others")
    other = np.repeat(row, 400, axis=0)
    for place, value in (((7, 0), 1.0), ((7, 1), 0.0), ((7, 2), 4.0)):
        changed = other.copy()
        changed[place] = value
        for x in (changed, sparse.csr_matrix(changed)):
            said = describe_constant(same, graph_of(y, x=x))
            assert said is not None
            assert "train longer" in said
    said = describe_constant(same, graph_of(y), learns=False)
    assert said is not None
    assert said.endswith("spreads labels along edges: add training nodes, or edges to them")


@pytest.mark.parametrize("y", [np.zeros(400, np.int64), np.arange(24) % 2])
def test_equal_targets_and_few_nodes_are_not_judged(y: np.ndarray) -> None:
    assert describe_constant(torch.tensor([1.0, 0.0]).expand(len(y), 2), graph_of(y, num_classes=2)) is None


def test_a_graph_without_splits_is_not_judged() -> None:
    bare = Graph.from_edges(np.zeros((2, 0), np.int64), np.ones((30, 1)))
    assert describe_constant(torch.zeros(30, 1), bare) is None
