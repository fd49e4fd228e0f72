"""Exact evaluation of a model over the whole graph."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.models import MLP, Decoupled
from lazygnn.propagation import NoPropagation
from lazygnn.task import Task
from lazygnn.training import evaluate, infer
from lazygnn.training.evaluation import assess


class Known(Decoupled):
    """Predicts given classes."""

    def __init__(self, classes: list[int]) -> None:
        super().__init__(MLP(3, 4, 2, mlp_layers=1), NoPropagation())
        self.classes = classes

    def infer(self, graph: Graph) -> Tensor:
        assert graph.num_nodes == len(self.classes)
        assert not self.training
        assert not torch.is_grad_enabled()
        return torch.eye(2)[self.classes]


def test_every_split_is_scored_by_its_own_nodes(path_graph: Graph) -> None:
    # of the nodes 0 and 2 for training, the second is wrong
    assert evaluate(Known([0, 0, 0, 0]), path_graph) == {"train": 0.5, "val": 1.0, "test": 0.0}
    assert evaluate(Known([0, 1, 1, 1]), path_graph, "accuracy") == {"train": 1.0, "val": 0.0, "test": 1.0}


class Choosing(Known):
    """Chooses between given classes and outputs that are all `other`."""

    def __init__(self, classes: list[int], other: float) -> None:
        super().__init__(classes)
        self.other, self.found = other, [0.0]

    def select(self, graph: Graph, score: Callable[[Tensor], float]) -> Tensor:
        outputs = self.infer(graph)
        rows = outputs[graph.masks["val"]]
        self.found = [score(rows), score(torch.full_like(rows, self.other))]
        return outputs


def test_a_model_chooses_by_the_score_of_the_validation_split(path_graph: Graph) -> None:
    model = Choosing([0, 1, 1, 0], other=0.0)
    assert assess(model, path_graph, select=True).scores == {"train": 1.0, "val": 0.0, "test": 0.0}
    # equal outputs predict the first class, which the validation node has
    assert model.found == [0.0, 1.0]


def test_a_model_does_not_choose_by_a_score_that_is_not_defined(path_graph: Graph) -> None:
    with pytest.raises(ConfigError, match=r"the outputs of split `val` hold nan \(2 such values\), which have no"):
        assess(Choosing([0, 0, 0, 0], other=math.nan), path_graph, select=True)
    with pytest.raises(GraphError, match=r"split `val` of size 1: `roc-auc` needs a class that some nodes have and"):
        assess(Choosing([0, 0, 0, 0], other=0.0), path_graph, "roc-auc", select=True)


def test_outputs_are_those_of_inference(path_graph: Graph) -> None:
    assert torch.equal(infer(Known([1, 0, 1, 0]), path_graph), torch.eye(2)[[1, 0, 1, 0]])


def test_what_is_not_a_graph_is_refused(path_graph: Graph) -> None:
    features: Any = path_graph.x
    for function in (infer, evaluate):
        with pytest.raises(GraphError, match=r"`graph` is of type Tensor and shape \(4, 3\)"):
            function(Known([0, 0, 0, 0]), features)


def test_evaluation_turns_dropout_off_and_restores_the_mode(block_graph: Graph) -> None:
    model = Decoupled(MLP(3, 16, 3, mlp_layers=2, dropout=0.9), NoPropagation())
    for mode in (True, False):
        model.train(mode)
        assert torch.equal(infer(model, block_graph), infer(model, block_graph))
        assert model.training is mode
    model.train()
    with pytest.raises(ConfigError):
        evaluate(model, block_graph, "r2")
    broken = replace(block_graph, x=torch.ones(60, 7))
    with pytest.raises(ConfigError, match="has 7 columns, and the layer was built for 3"):
        infer(model, broken)
    assert model.training


class Selecting(Known):
    """Predicts the better one of two classes for all nodes, by the score of validation."""

    def __init__(self) -> None:
        super().__init__([0, 0, 0, 0])
        self.scores: list[float] = []

    def select(self, graph: Graph, score: Callable[[Tensor], float]) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        candidates = [[0] * graph.num_nodes, [1] * graph.num_nodes]
        self.scores = [score(torch.eye(2)[classes][graph.masks["val"]]) for classes in candidates]
        self.classes = max(candidates, key=lambda classes: self.scores[classes[0]])
        return self.infer(graph)


@pytest.mark.parametrize("better", [0, 1])
def test_a_model_selects_by_the_score_of_validation_on_request(path_graph: Graph, better: int) -> None:
    # one node is for validation; the labels of the others must not matter
    graph, model = replace(path_graph, y=torch.tensor([1 - better, better, 1 - better, 1 - better])), Selecting()
    assert evaluate(model.train(), graph)["val"] == 1 - better
    assert model.scores == []
    assert assess(model, graph, select=True).scores == {"train": 0.0, "val": 1.0, "test": 0.0}
    assert model.scores == [1 - better, better]
    assert model.training
    # what was selected remains
    assert torch.equal(infer(model, graph), torch.eye(2)[[better] * 4])


def test_outputs_are_those_selected_by_a_score(path_graph: Graph) -> None:
    out = infer(Selecting(), path_graph, score=lambda outputs: float(outputs[:, 1].sum()))
    assert torch.equal(out, torch.eye(2)[[1] * 4])


def test_without_validation_nodes_nothing_is_selected(path_graph: Graph) -> None:
    model = Selecting()
    masks = {name: mask for name, mask in path_graph.masks.items() if name != "val"}
    assert assess(model, replace(path_graph, masks=masks), select=True).scores == {"train": 0.5, "test": 0.0}
    assert model.scores == []


class Labels(Decoupled):
    """Returns given outputs for two labels."""

    def __init__(self, outputs: Tensor) -> None:
        super().__init__(MLP(3, 4, 2, mlp_layers=1), NoPropagation())
        self.outputs = outputs

    def infer(self, graph: Graph) -> Tensor:
        return self.outputs


def several_labels(path_graph: Graph) -> Graph:
    y = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    return replace(path_graph, y=y, task=Task("multi-label", 2))


# the labels of all nodes have a probability of 0.32, the others have one of 0.2
UNSURE = torch.tensor([[0.32, 0.2], [0.32, 0.2], [0.2, 0.32], [0.2, 0.32]]).logit()


def test_a_threshold_is_chosen_on_validation_and_kept(path_graph: Graph) -> None:
    graph, model = several_labels(path_graph), Labels(UNSURE)
    assert evaluate(model, graph) == {"train": 0.0, "val": 0.0, "test": 0.0}
    found = assess(model, graph, select=True, learn_threshold=True)
    assert model.decide(graph.task).threshold == 0.3
    assert found.scores == {"train": 1.0, "val": 1.0, "test": 1.0}
    assert found.value == 1.0
    # from now on it is the threshold of the model
    assert evaluate(model, graph) == found.scores
    assert model.state_dict()["label_threshold"] == 0.3
    assert assess(model, graph, learn_threshold=True).scores == found.scores


def test_labels_outside_of_validation_do_not_change_the_threshold(path_graph: Graph) -> None:
    graph, model = several_labels(path_graph), Labels(UNSURE)
    poisoned = replace(graph, y=torch.where(graph.masks["val"][:, None], graph.y, 1 - graph.y))
    assess(model, poisoned, select=True, learn_threshold=True)
    assert model.decide(graph.task).threshold == 0.3


def test_the_criterion_counts_the_loss_of_the_outputs_as_they_are(path_graph: Graph) -> None:
    graph, model = several_labels(path_graph), Labels(UNSURE)
    found = assess(model, graph, loss=graph.task, select=True, learn_threshold=True)
    plain = assess(Labels(UNSURE), graph, loss=graph.task)
    assert found.value is not None
    assert plain.value is not None
    assert found.value - plain.value == pytest.approx(1.0)


@pytest.mark.parametrize("columns", [2, 4])
def test_a_model_of_another_number_of_outputs_is_refused(block_graph: Graph, columns: int) -> None:
    model = Decoupled(MLP(block_graph.in_channels, 4, columns, mlp_layers=1), NoPropagation())
    message = rf"the model returns {columns} columns, but the graph has 3 outputs; give the last layer `graph\.task\."
    with pytest.raises(ConfigError, match=message):
        evaluate(model, block_graph)
    with pytest.raises(ConfigError, match=message):
        model.loss(Batch.full(block_graph, 0), block_graph.task)
