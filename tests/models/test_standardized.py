from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch, Ring
from lazygnn.config import TrainerOptions
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader
from lazygnn.methods import build, resolve
from lazygnn.models import MLP, Decoupled, Standardized
from lazygnn.propagation import NoPropagation
from lazygnn.training import Trainer, evaluate, infer
from tests.helpers import random_rows


def numbers_graph(center: float = 5e4, scale: float = 1e3) -> Graph:
    """Sixty nodes whose two targets are linear in the features; only half of them are training nodes."""
    at = np.arange(60)
    x = random_rows(60, 3, 0).numpy()
    y = center + scale * (x[:, :2] - x[:, 1:])
    y[:30] *= 1.5
    return Graph.from_edges(
        np.stack((at, at)), x, y, train_mask=at >= 30, val_mask=at < 15, test_mask=(at >= 15) & (at < 30)
    )


class Identity(Decoupled):
    """Returns the targets that it is given, to see them."""

    def __init__(self) -> None:
        super().__init__(MLP(3, 4, 2, mlp_layers=1), NoPropagation())
        self.seen: list[Tensor] = []

    def forward(self, batch: Batch) -> Tensor:
        self.seen += [batch.y] if batch.ring is None else [batch.y, batch.ring.y]
        return batch.y

    def infer(self, graph: Graph) -> Tensor:
        self.seen.append(graph.y)
        return graph.y

    def select(self, graph: Graph, score: Callable[[Tensor], float]) -> Tensor:
        score(graph.y)
        return graph.y

    def fill(self, batch: Batch) -> None:
        self.seen.append(batch.y)

    def diagnose(self, graph: Graph) -> dict[str, float]:
        return {"mean": float(graph.y[graph.masks["train"]].mean())}


def test_the_model_sees_standardized_targets_and_the_caller_those_of_the_data() -> None:
    graph, model = numbers_graph(), Identity()
    wrapped = Standardized.fit(model, graph)
    batch = Batch.full(graph, 0)
    batch = replace(batch, ring=Ring(graph.y, batch.weight, batch.weight))
    scored: list[Tensor] = []

    def score(outputs: Tensor) -> float:
        scored.append(outputs)
        return 0.0

    for outputs in (wrapped(batch), wrapped.infer(graph), wrapped.select(graph, score), *scored):
        torch.testing.assert_close(outputs, graph.y)
    assert len(scored) == 1
    wrapped.fill(batch)
    assert len(model.seen) == 4
    for seen in model.seen:
        train = seen[graph.masks["train"]]
        torch.testing.assert_close(train.mean(dim=0), torch.zeros(2), rtol=0, atol=1e-4)
        torch.testing.assert_close(train.std(dim=0, correction=0), torch.ones(2))
    assert wrapped.diagnose(graph)["mean"] == pytest.approx(0, abs=1e-4)
    assert wrapped.layer_parameters() == model.layer_parameters()


def test_a_target_without_deviation_is_centered_alone() -> None:
    graph = numbers_graph()
    graph = replace(graph, y=torch.stack((torch.full((60,), 0.1), graph.y[:, 1]), dim=1))
    wrapped = Standardized.fit(Identity(), graph)
    assert float(wrapped.target_scale[0]) == 1
    assert float(wrapped.target_center[0]) == pytest.approx(0.1)


def test_a_graph_without_targets_can_be_predicted() -> None:
    graph = numbers_graph()
    wrapped = Standardized.fit(Decoupled(MLP(3, 4, 2, mlp_layers=1), NoPropagation()), graph)
    bare = Graph.from_edges(np.zeros((2, 0), np.int64), graph.x)
    torch.testing.assert_close(infer(wrapped, bare), infer(wrapped, graph))
    # nor targets of the same number
    other = replace(graph, y=torch.ones(60, 3), task=replace(graph.task, num_outputs=3))
    assert torch.equal(infer(wrapped, other), infer(wrapped, graph))


def test_large_numbers_are_learned_as_quickly_as_small_ones() -> None:
    found = []
    for center, scale, wraps in ((0.0, 1.0, True), (5e4, 1e3, True), (5e4, 1e3, False)):
        graph = numbers_graph(center, scale)
        graph = replace(graph, y=graph.y / torch.where(torch.arange(60) < 30, 1.5, 1.0)[:, None])
        torch.manual_seed(0)
        plain = Decoupled(MLP(3, 8, 2, mlp_layers=1), NoPropagation())
        model = Standardized.fit(plain, graph) if wraps else plain
        Trainer(model, FullLoader(graph, 0), graph, TrainerOptions(epochs=40, lr=0.1)).fit()
        found.append(evaluate(model, graph, "r2")["test"])
    assert found[0] > 0.9
    assert found[1] == pytest.approx(found[0], abs=1e-3)
    assert found[2] < 0


def test_the_shares_of_a_mixture_are_those_of_the_model() -> None:
    built = build(resolve("lazygnn-deep", "numbers", {"epochs": 1, "hidden_channels": 4}), numbers_graph())
    assert isinstance(built.model, Standardized)
    assert built.model.shares == built.model.model.shares
    assert sum(built.model.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize(("method", "wanted", "wraps"), [("mlp", True, True), ("mlp", False, False)])
def test_the_option_decides(method: str, wanted: bool, wraps: bool) -> None:
    config = resolve(method, "numbers", {"epochs": 1, "standardize_targets": wanted})
    assert isinstance(build(config, numbers_graph()).model, Standardized) == wraps


def test_labels_and_models_without_weights_are_left_as_they_are(block_graph: Graph) -> None:
    assert not isinstance(build(resolve("mlp", "block", {"epochs": 1}), block_graph).model, Standardized)
    config = resolve("label-propagation", "numbers", {"epochs": 0})
    assert not isinstance(build(config, numbers_graph()).model, Standardized)
