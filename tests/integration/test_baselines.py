"""Properties of training that every baseline must have: it resumes, reads no other labels, and learns."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.methods import build, resolve
from lazygnn.training.trainer import Trainer

SETTINGS: dict[str, dict[str, Any]] = {
    "graphsage": {"num_neighbors": [3, 2], "batch_size": 6, "norm": "batch", "hidden_channels": 5},
    "cluster-gcn": {"num_parts": 5, "parts_per_batch": 2, "partition": "random", "hidden_channels": 5},
    "fastgcn": {"num_samples": 20, "batch_size": 6, "norm": "batch", "hidden_channels": 5},
    "ladies": {"num_samples": 20, "batch_size": 6, "norm": "batch", "hidden_channels": 5},
    "vr-gcn": {"num_neighbors": 2, "batch_size": 6, "norm": "batch", "hidden_channels": 5, "num_layers": 3},
    "mvs-gnn": {"batch_size": 6, "refresh_every": 3, "refresh_share": 0.5, "norm": "batch", "hidden_channels": 5},
    "graphsaint": {"num_samples": 8, "coverage": 3, "hidden_channels": 5},
    "sgc": {"batch_size": 6},
    "sign": {"batch_size": 6, "hidden_channels": 5, "mlp_layers": 2, "norm": "batch"},
}
TRAINED = list(SETTINGS)
# batches of the others are drawn anew, so that only the expectation of their weights is known
SPLITTING = [method for method in TRAINED if method not in ("mvs-gnn", "graphsaint")]


def make(graph: Graph, method: str, **values: Any) -> Trainer:
    torch.manual_seed(0)
    config = resolve(method, "block", {"epochs": 4, **SETTINGS[method], **values}, seed=3)
    built = build(config, graph)
    return Trainer(built.model, built.loader, built.graph, config.trainer, seed=3)


def tensors(trainer: Trainer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trainer.checkpoint()[0].items()}


class StopHere(Exception):
    pass


@pytest.mark.parametrize("method", TRAINED)
def test_stopping_after_any_batch_changes_nothing(block_graph: Graph, method: str) -> None:
    straight = make(block_graph, method)
    straight.run()
    one, first = tensors(straight), make(block_graph, method)
    saved: dict[int, Any] = {}

    def stop(trainer: Trainer) -> None:
        if trainer.num_batches in (1, 4, 6):
            saved[trainer.num_batches] = deepcopy(trainer.checkpoint())
        if trainer.num_batches == 6:
            raise StopHere

    first.on_batch = stop
    with pytest.raises(StopHere):
        first.run()
    for number, state in saved.items():
        second = make(block_graph, method)
        second.restore(*state)
        second.run()
        other = tensors(second)
        assert one.keys() == other.keys()
        assert [name for name in one if not torch.equal(one[name], other[name])] == [], f"after {number} batches"


@pytest.mark.parametrize("method", TRAINED)
def test_labels_of_validation_and_test_do_not_reach_the_weights(block_graph: Graph, method: str) -> None:
    poisoned = block_graph.y.clone()
    others = ~block_graph.masks["train"]
    poisoned[others] = (poisoned[others] + 1) % 3
    weights = []
    for y in (block_graph.y, poisoned):
        trainer = make(replace(block_graph, y=y), method)
        trainer.run()
        weights.append(trainer.model.state_dict())
    assert [name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])] == []


@pytest.mark.parametrize("method", TRAINED)
def test_training_beats_chance(block_graph: Graph, method: str) -> None:
    result = make(block_graph, method, epochs=20, lr=0.05, eval_every=5).fit()
    assert result.scores["test"] > 0.5


@pytest.mark.parametrize("method", SPLITTING)
def test_the_loss_of_an_epoch_is_the_mean_over_training_nodes(block_graph: Graph, method: str) -> None:
    """The weights of an epoch sum to the number of batches."""
    loader = make(block_graph, method).loader
    total = sum(float(batch.weight.sum()) for batch in loader)
    assert total / len(loader) == pytest.approx(1.0)
