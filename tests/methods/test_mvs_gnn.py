from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.loader import ImportanceLoader
from lazygnn.methods import Built, Place, build, build_model, resolve
from lazygnn.models import MVSGCN
from lazygnn.task import Task
from lazygnn.training import Trainer
from lazygnn.training.balance import balanced
from tests.helpers import random_rows

Make = Callable[..., Built]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


def test_the_options_describe_a_gcn_on_drawn_nodes(make: Make) -> None:
    drawing = {"batch_size": 6, "refresh_every": 3, "refresh_share": 0.5, "uniform_share": 0.2}
    built = make("mvs-gnn", num_layers=3, **drawing, **LAYERS)
    model, loader = built.model, built.loader
    assert isinstance(model, MVSGCN)
    assert isinstance(loader, ImportanceLoader)
    assert {name: getattr(loader, name) for name in drawing} == drawing
    assert (model.dropout, model.input_dropout, len(model.layers)) == (0.2, 0.1, 3)
    # one row of activations after each layer but the last, and one number
    assert sorted(history.num_bytes for history in named_histories(model).values()) == [60 * 4, 60 * 36, 60 * 36]


def test_batches_are_drawn_by_the_gradients_of_the_model(make: Make) -> None:
    built = make("mvs-gnn", batch_size=6, refresh_every=1, **LAYERS)
    model, loader = built.model, built.loader
    assert isinstance(model, MVSGCN)
    assert isinstance(loader, ImportanceLoader)
    assert loader.source is model
    train = built.graph.masks["train"].nonzero()[:, 0]
    uniform = loader.probabilities()
    next(iter(loader))
    norms, known = model.stored_norms(train)
    assert bool(known.all())
    p = loader.probabilities()
    assert not torch.allclose(p, uniform)
    assert torch.equal(p.argsort(), norms.argsort())


def test_gradients_are_those_of_the_weighted_loss(make: Make) -> None:
    """A class that counts twice as much is drawn as if its gradients were twice as large."""
    found: dict[str, torch.Tensor] = {}
    for class_weight in ("none", "balanced"):
        built = make("mvs-gnn", class_weight=class_weight, refresh_every=1, **LAYERS)
        loader, graph = built.loader, built.graph
        options = resolve("mvs-gnn", "block", {"class_weight": class_weight}).trainer
        assert isinstance(built.model, MVSGCN)
        Trainer(built.model, loader, graph, options)
        next(iter(loader))
        train = graph.masks["train"].nonzero()[:, 0]
        found[class_weight], _ = built.model.stored_norms(train)
    present = balanced(graph, graph.device).present
    assert float(present.max()) > 1.1 * float(present.min())
    torch.testing.assert_close(found["balanced"], found["none"] * present[graph.y[train]])


def test_the_units_of_a_regression_do_not_change_the_draws(block_graph: Graph) -> None:
    found = []
    for center, scale in ((0.0, 1.0), (5e4, 1e3)):
        numbers = center + scale * random_rows(60, 2, 0, torch.float32)
        graph = replace(block_graph, y=numbers, task=Task("regression", 2))
        torch.manual_seed(0)
        built = build(resolve("mvs-gnn", "numbers", {"batch_size": 6, **LAYERS}), graph)
        assert isinstance(built.loader, ImportanceLoader)
        next(iter(built.loader))
        found.append(built.loader.probabilities())
    torch.testing.assert_close(*found, rtol=0.01, atol=0)
    assert float(found[0].max()) > 1.5 * float(found[0].min())


def test_inference_has_no_histories(block_graph: Graph) -> None:
    model = build_model(resolve("mvs-gnn", "block"), block_graph, Place(torch.device("cpu"), training=False))
    assert len(named_histories(model)) == 0


def test_a_single_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="option `num_layers` is 1: input should be greater than or equal to 2"):
        resolve("mvs-gnn", "mine", {"num_layers": 1})
