from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.model import Model, weighted_loss
from lazygnn.task import Task
from tests.helpers import random_rows


class Scale(Model):
    """The least that a model must have."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(3))

    def forward(self, batch: Batch) -> Tensor:
        return batch.x.to_dense() * self.factor

    def infer(self, graph: Graph) -> Tensor:
        return graph.x.to_dense() * self.factor

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        return [[self.factor]]


def test_a_model_without_histories_has_nothing_to_fill_or_diagnose(block_graph: Graph) -> None:
    model = Scale()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    model.fill(Batch.full(block_graph, 1))
    assert model.diagnose(block_graph) == {}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_is_not_replayed_unless_it_says_so() -> None:
    assert not Scale().replayable


def test_the_device_is_that_of_the_weights() -> None:
    assert Scale().device == torch.device("cpu")
    assert Scale().to("meta").device == torch.device("meta")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_loss_is_weighted_by_node_and_at_least_in_float32(block_graph: Graph, dtype: torch.dtype) -> None:
    batch = Batch.full(block_graph, 1)
    outputs = random_rows(60, 3, 1, dtype)
    train, task = block_graph.masks["train"], block_graph.task
    expected = task.loss(outputs[train].double(), block_graph.y[train]).mean()
    loss = weighted_loss(outputs, batch.y, batch.weight, task)
    assert loss.dtype == (torch.float32 if dtype == torch.bfloat16 else dtype)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0)


def test_the_loss_of_a_model_is_that_of_its_outputs(block_graph: Graph) -> None:
    model, batch = Scale(), Batch.full(block_graph, 1)
    expected = weighted_loss(model(batch), batch.y, batch.weight, block_graph.task)
    loss = model.loss(batch, block_graph.task)
    assert torch.equal(loss, expected)
    loss.backward()
    assert model.factor.grad is not None
    # other labels outside of the training split do not change it
    other = torch.where(block_graph.masks["train"], block_graph.y, (block_graph.y + 1) % 3)
    assert torch.equal(model.loss(replace(batch, y=other), block_graph.task), loss)


def test_a_model_selects_nothing_unless_it_says_so(block_graph: Graph) -> None:
    def score(_: Tensor) -> float:
        raise AssertionError("there is nothing to choose from")

    model = Scale()
    assert torch.equal(model.select(block_graph, score), model.infer(block_graph))


def test_a_model_without_embeddings_says_so(block_graph: Graph) -> None:
    with pytest.raises(ConfigError, match="a model of type Scale has no embeddings; train one of: mlp, appnp"):
        Scale().embed(block_graph)


def test_weights_with_a_threshold_fit_a_model_without_one() -> None:
    model, task = Scale(), Task("multi-label", 3)
    names = set(model.state_dict())
    model.set_threshold(0.3)
    other = Scale()
    other.load_state_dict(model.state_dict())
    assert other.decide(task).threshold == 0.3
    other.set_threshold(None)
    assert other.decide(task) is task
    assert set(other.state_dict()) == names
