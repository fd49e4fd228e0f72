"""The defaults of a method that defines nothing but a model and a loader."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

from lazygnn.graph import Graph
from lazygnn.loader import FullLoader
from lazygnn.methods.base import Cut, Method, MethodOptions, Place
from lazygnn.model import Model
from lazygnn.models import MLP, Decoupled
from lazygnn.propagation import NoPropagation

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
