"""The defaults of a method that defines nothing but a model and a loader."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import pytest
import torch

from lazygnn.graph import Graph
from lazygnn.loader import FullLoader
from lazygnn.methods.base import Cut, Facts, Method, MethodOptions, Place
from lazygnn.model import Model
from lazygnn.models import MLP, Decoupled
from lazygnn.propagation import NoPropagation
from lazygnn.task import Task

CPU = Place(torch.device("cpu"))


def make_model(options: MethodOptions, graph: Graph, place: Place) -> Model:
    return Decoupled(MLP(graph.in_channels, 4, 2, mlp_layers=1), NoPropagation())


def make_loader(options: MethodOptions, cut: Cut, place: Place) -> FullLoader:
    return FullLoader(cut.graph, 0)


METHOD = Method("a perceptron", "nowhere", MethodOptions, make_model, make_loader)


def test_a_method_does_not_change_the_graph_by_default(path_graph: Graph) -> None:
    assert METHOD.prepare(METHOD.options(), path_graph) is path_graph


def test_options_ask_for_the_whole_graph_on_the_device_by_default(path_graph: Graph) -> None:
    options = METHOD.options()
    options.check(CPU.device)
    assert options.find_parts(path_graph, None) is None
    assert not options.keeps_features_on_host
    assert not options.normalize_features


def test_a_model_is_built_for_training_in_float32_by_default() -> None:
    assert (CPU.training, CPU.folder, CPU.compute_dtype) == (True, None, torch.float32)


def test_places_and_methods_cannot_be_changed() -> None:
    changed: Any
    for changed, name in ((CPU, "training"), (METHOD, "summary")):
        with pytest.raises(FrozenInstanceError):
            setattr(changed, name, None)


def test_its_parts_fit_together(path_graph: Graph) -> None:
    options, cut = METHOD.options(), Cut(path_graph, torch.tensor([0, 4]), seed=0)
    (batch,) = METHOD.loader(options, cut, CPU)
    assert METHOD.model(options, path_graph, CPU)(batch).shape == (4, 2)


def line(train: list[int], num_nodes: int = 6, edges: list[tuple[int, int]] | None = None) -> Graph:
    """Returns a path of nodes, or the given edges."""
    links = [(node, node + 1) for node in range(num_nodes - 1)] if edges is None else edges
    mask = np.zeros(num_nodes, dtype=bool)
    mask[train] = True
    y = np.arange(num_nodes) % 2
    return Graph.from_edges(np.array(links).T, np.ones((num_nodes, 3)), y, train_mask=mask)


@pytest.mark.parametrize(
    ("train", "share"), [([0], 1 / 5), ([0, 5], 1 / 2), ([1, 4], 1.0), ([0, 1, 2, 3, 4, 5], 0.0)], ids=str
)
def test_facts_tell_how_many_nodes_are_near_a_label(train: list[int], share: float) -> None:
    facts = Facts.of(line(train))
    assert (facts.num_nodes, facts.num_train, facts.in_channels) == (6, len(train), 3)
    assert facts.near_labels == pytest.approx(share)


def test_facts_of_a_large_graph_are_estimated_on_some_nodes() -> None:
    # the training node is linked to every other node of the first half; the standard error of the estimate is 0.004
    size = 40_000
    edges = [(0, node) for node in range(1, size // 2, 2)]
    assert Facts.of(line([0], size, edges)).near_labels == pytest.approx(1 / 4, abs=0.02)


def test_labels_of_another_component_are_not_near() -> None:
    assert Facts.of(line([0, 1, 2], edges=[(0, 1), (1, 2), (3, 4), (4, 5)])).near_labels == 0


def test_an_edge_without_weight_brings_no_label() -> None:
    graph = line([0, 2, 4])
    assert Facts.of(graph).near_labels == 1
    assert Facts.of(replace(graph, adj=graph.adj.with_value(torch.zeros_like(graph.adj.value)))).near_labels == 0


def test_several_labels_count_if_they_can_be_validated(path_graph: Graph) -> None:
    several = replace(path_graph, y=torch.ones(4, 2), task=Task("multi-label", 2))
    assert Facts.of(several).several_labels
    assert not Facts.of(path_graph).several_labels
    unjudged = {name: mask for name, mask in several.masks.items() if name != "val"}
    assert not Facts.of(replace(several, masks=unjudged)).several_labels
