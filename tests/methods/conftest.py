"""Building a method on the small graph, as all tests of methods do."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.methods import Built, build, derive, resolve
from lazygnn.model import Model
from lazygnn.propagation import LazyPropagation


@pytest.fixture
def make(block_graph: Graph) -> Callable[..., Built]:
    """Builds a method with options that differ from its recipe."""

    def make(method: str, **values: Any) -> Built:
        torch.manual_seed(0)
        # derived, so that no warning tells of other defaults for the graph
        return build(derive(resolve(method, "block", values), {}), block_graph)

    return make


@pytest.fixture
def make_lazy(make: Callable[..., Built]) -> Callable[..., LazyPropagation]:
    """Builds a method and returns its lazy propagation."""

    def make_lazy(method: str, **values: Any) -> LazyPropagation:
        propagation = make(method, **values).model.propagation
        assert isinstance(propagation, LazyPropagation)
        return propagation

    return make_lazy


@pytest.fixture
def unchecked() -> Callable[..., Config]:
    """Makes a configuration that an earlier version may have stored, with options that are refused now."""

    def unchecked(method: str, **values: Any) -> Config:
        config = resolve(method, "block")
        return config.model_copy(update={"model": config.model.model_copy(update=values)})

    return unchecked


@pytest.fixture
def is_same() -> Callable[[Built, Callable[[], Model]], bool]:
    """Compares a model with one that is made by hand: weights from the same seed, outputs with the same dropout."""

    def is_same(built: Built, expected: Callable[[], Model]) -> bool:
        torch.manual_seed(0)
        models = [built.model.train(), expected().train()]
        first, second = (model.state_dict() for model in models)
        if first.keys() != second.keys() or not all(torch.equal(first[name], second[name]) for name in first):
            return False
        batch, outputs = next(iter(built.loader.sweep())), []
        for model in models:
            torch.manual_seed(1)
            outputs.append(model(batch))
        return torch.equal(*outputs)

    return is_same
