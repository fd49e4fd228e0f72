import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.model import Model


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
