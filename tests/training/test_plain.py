"""A module of one's own, with nothing of the library but the batch."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.config import TrainerOptions
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.model import Model
from lazygnn.models import GCN, LazyBlock
from lazygnn.ops import aggregate
from lazygnn.task import Task
from lazygnn.training import Trainer, evaluate, infer
from lazygnn.training.plain import PlainModel, as_model
from tests.helpers import needs_cuda


class Net(nn.Module):
    """Two convolutions, as a user writes them."""

    num_layers = 2

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 16), nn.Linear(16, channels)
        self.dropout = nn.Dropout(0.5)

    def forward(self, batch: Batch) -> Tensor:
        hidden = aggregate(batch.adjs[0], self.first(batch.x)).relu()
        return aggregate(batch.adjs[1], self.last(self.dropout(hidden)))[: batch.num_targets]


@pytest.mark.parametrize("parts", [1, 3])
def test_a_plain_module_trains_and_is_evaluated(block_graph: Graph, parts: int) -> None:
    torch.manual_seed(0)
    net = Net()
    # a part is a block, which has most of the edges
    graph = block_graph.permute(block_graph.y.argsort(stable=True))
    ptr = torch.tensor([0, 20, 40, 60])
    loader = FullLoader(graph, 2) if parts == 1 else ClusterLoader(graph, ptr, 2, halo="none")
    result = Trainer(net, loader, graph, TrainerOptions(epochs=20, lr=0.05)).fit()
    assert result.scores["test"] > 0.8
    # the best weights are in the module itself
    assert evaluate(net, graph) == result.scores
    net.eval()
    with torch.no_grad():
        expected = net(Batch.full(graph, 2))
    assert torch.equal(infer(net, graph), expected)


class Lazy(nn.Module):
    """A block with a history, as a user puts it into a model."""

    num_layers = 2

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 3)
        self.block = LazyBlock.for_graph(graph, 8)

    def forward(self, batch: Batch) -> Tensor:
        assert isinstance(batch.x, Tensor)
        out: Tensor = self.last(self.block(self.first(batch.x[: batch.num_targets]), batch))
        return out


def test_histories_of_a_plain_module_have_a_row_for_every_node_before_the_first_step(block_graph: Graph) -> None:
    module, empty = Lazy(block_graph), list[int]()
    (history,) = named_histories(module).values()

    def look(_: Trainer) -> None:
        rows = history.values.read(torch.arange(60))
        empty.append(int((rows == 0).all(dim=1).sum()))

    loader = ClusterLoader(block_graph, torch.tensor([0, 20, 40, 60]), 2)
    Trainer(module, loader, block_graph, TrainerOptions(epochs=1), on_batch=look).fit()
    assert empty == [0, 0, 0]


@pytest.mark.parametrize("mode", [True, False])
def test_inference_turns_dropout_off_and_restores_the_mode(block_graph: Graph, mode: bool) -> None:
    net = Net().train(mode)
    assert torch.equal(infer(net, block_graph), infer(net, block_graph))
    assert net.training is mode
    assert net.dropout.training is mode


def test_a_stopped_training_goes_on_as_if_it_had_not_stopped(block_graph: Graph) -> None:
    def trained(epochs: int, after: Trainer | None = None) -> Trainer:
        torch.manual_seed(0)
        trainer = Trainer(Net(), FullLoader(block_graph, 2), block_graph, TrainerOptions(epochs=epochs))
        if after is not None:
            trainer.restore(*saved)
        trainer.run()
        return trainer

    whole, half = trained(6), trained(3)
    saved = half.checkpoint()
    rest = trained(6, half)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(rest.model.state_dict()[name], value)


def test_a_model_of_the_library_is_not_wrapped() -> None:
    model = GCN(3, 4, 3, num_layers=2)
    assert as_model(model) is model
    assert isinstance(as_model(Net()), PlainModel)


def test_a_module_without_weights_is_evaluated_and_not_trained(block_graph: Graph) -> None:
    class Features(nn.Module):
        num_layers = 0

        def forward(self, batch: Batch) -> Tensor:
            return torch.as_tensor(batch.x)

    assert torch.equal(infer(Features(), block_graph), torch.as_tensor(block_graph.x))
    with pytest.raises(ConfigError, match=r"the model has no weights to train; set `epochs=0`"):
        Trainer(Features(), FullLoader(block_graph, 0), block_graph, TrainerOptions())


class TwoArguments(Net):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
        return x


class NoInference(Model):
    def forward(self, batch: Batch) -> Tensor:
        return batch.x.to_dense()


# as at run time, where abstract methods are not checked
NO_INFERENCE: Any = NoInference


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(3, 3), r"`Linear` has no whole number `num_layers`; set it to the number of matrices of"),
        (TwoArguments(), r"`TwoArguments.forward` takes \(x, edge_index\); give it one argument, a `Batch` with"),
        (NO_INFERENCE(), r"`NoInference` has no method `infer`, which a `Model` must have; define it, or derive"),
        ("gcn", r"`model` is 'gcn', of type str; give a model of `build`, or an `nn.Module` of your own"),
    ],
    ids=["no-layers", "two-arguments", "no-infer", "not-a-module"],
)
def test_what_a_module_lacks_is_said_before_training(block_graph: Graph, model: Any, message: str) -> None:
    for call in (
        lambda: Trainer(model, FullLoader(block_graph, 1), block_graph, TrainerOptions()),
        lambda: evaluate(model, block_graph),
        lambda: infer(model, block_graph),
    ):
        with pytest.raises(ConfigError, match=message):
            call()


class Wrong(Net):
    def __init__(self, outputs: object) -> None:
        super().__init__()
        self.outputs = outputs

    def forward(self, batch: Batch) -> Any:
        return self.outputs


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("text", r"`Wrong\(batch\)` is 'text', of type str; return a tensor, a row for every target"),
        (torch.zeros(61, 3), r"`Wrong.forward` returns shape \(61, 3\) for 60 targets; return a row for each"),
        (torch.zeros(60), r"`Wrong.forward` returns shape \(60,\) for 60 targets; return a row for each"),
        (torch.zeros(60, 4), r"`Wrong.forward` returns 4 columns, but the graph has 3 outputs; give the last layer"),
    ],
    ids=["not-a-tensor", "too-many-rows", "one-dimension", "too-many-columns"],
)
def test_wrong_outputs_are_described(block_graph: Graph, outputs: object, message: str) -> None:
    net = Wrong(outputs)
    with pytest.raises(ConfigError, match=message):
        infer(net, block_graph)
    with pytest.raises(ConfigError, match=message):
        Trainer(net, FullLoader(block_graph, 2), block_graph, TrainerOptions()).run()


@needs_cuda
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_a_module_on_a_gpu_takes_a_graph_from_anywhere(block_graph: Graph, place: str) -> None:
    torch.manual_seed(0)
    graph, net = block_graph.to(place), Net().to("cuda")
    result = Trainer(net, FullLoader(graph, 2), graph, TrainerOptions(epochs=20, lr=0.05)).fit()
    assert result.scores["test"] > 0.8
    assert infer(net, graph).device.type == place


def test_a_module_keeps_the_threshold_that_validation_has_chosen(block_graph: Graph) -> None:
    y = (torch.arange(5) == block_graph.y[:, None]).float()
    graph = replace(block_graph, y=y, task=Task("multi-label", 5))
    torch.manual_seed(0)
    net = Net(5)
    names = set(net.state_dict())
    result = Trainer(net, FullLoader(graph, 2), graph, TrainerOptions(epochs=3, threshold="validation")).fit()
    assert result.threshold != 0.5
    assert evaluate(net, graph) == result.scores
    assert set(net.state_dict()) == names
    # another training starts anew
    plain = Trainer(net, FullLoader(graph, 2), graph, TrainerOptions(epochs=1)).fit()
    assert plain.threshold == 0.5
    assert evaluate(net, graph) == plain.scores
