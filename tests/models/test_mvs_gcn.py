import pytest
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.loader import ImportanceLoader
from lazygnn.models import GCN, MVSGCN
from lazygnn.models.gcn import GCNLayer
from lazygnn.ops import spmm
from lazygnn.propagation import Mix
from lazygnn.task import Task
from tests.helpers import open_float64, random_rows

TARGETS = torch.tensor([3, 50, 7, 22])


def make(graph: Graph, num_layers: int = 2) -> MVSGCN:
    torch.manual_seed(0)
    histories = [open_float64(60, 5, Mix(1.0)) for _ in range(num_layers - 1)]
    norms = open_float64(60, 1, Mix(1.0))
    model = MVSGCN(graph.in_channels, 5, 3, num_layers=num_layers, histories=histories, gradient_norms=norms)
    return model.double().train()


def gradient_of(model: GCN, graph: Graph, node: int) -> float:
    """Returns the norm of the gradient of a node's loss in the weights and the bias of the last layer."""
    assert isinstance(graph.x, Tensor)
    x: Tensor = graph.x
    for index, layer in enumerate(model.layers):
        assert isinstance(layer, GCNLayer)
        x = layer(x if index == 0 else torch.relu(x), graph.adj)
    loss = graph.task.loss(x[[node]], graph.y[[node]]).sum()
    assert isinstance(layer, GCNLayer)
    weight, bias = torch.autograd.grad(loss, [layer.weight, layer.bias])
    return float(torch.cat((weight.flatten(), bias)).norm())


@pytest.mark.parametrize("num_layers", [2, 3])
def test_norms_are_those_of_the_gradients_in_the_last_layer(graph: Graph, num_layers: int) -> None:
    model = make(graph, num_layers)
    model.measure(ImportanceLoader(graph, num_layers).exact_batch(TARGETS), graph.task)
    norms, known = model.stored_norms(torch.arange(60))
    assert torch.equal(known.nonzero()[:, 0], TARGETS.sort().values)
    for node in TARGETS.tolist():
        assert float(norms[node]) == pytest.approx(gradient_of(model, graph, node))
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("kind", ["multi-label", "regression"])
def test_norms_of_other_tasks_are_finite_and_positive(graph: Graph, kind: str) -> None:
    model, task = make(graph), Task(kind, 3)  # type: ignore[arg-type]
    batch = ImportanceLoader(graph, 2).exact_batch(TARGETS)
    object.__setattr__(batch, "y", (random_rows(4, 3, 1) > 0).double())
    model.measure(batch, task)
    norms, _ = model.stored_norms(TARGETS)
    assert bool((norms.isfinite() & (norms > 0)).all())


def test_measuring_stores_exact_activations_without_dropout(graph: Graph) -> None:
    model, loader = make(graph), ImportanceLoader(graph, 2)
    batch = loader.exact_batch(TARGETS)
    model.measure(batch, graph.task)
    first = model.layers[0]
    assert isinstance(first, GCNLayer)
    assert isinstance(graph.x, Tensor)
    exact = torch.relu(spmm(graph.adj, graph.x) @ first.weight + first.bias).detach()
    computed = batch.nodes[: batch.adjs[0].num_rows]
    stored = model.memory.histories[0].start(computed, 0, exact[:0]).x
    torch.testing.assert_close(stored, exact[computed])


def test_a_model_without_a_store_for_norms_cannot_measure(graph: Graph) -> None:
    model = MVSGCN(graph.in_channels, 5, 3, num_layers=2).double()
    with pytest.raises(ValueError, match="a model without `gradient_norms` cannot measure; build it with a history"):
        model.measure(ImportanceLoader(graph, 2).exact_batch(TARGETS), graph.task)


def test_one_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="`num_layers` must be at least 2, got 1"):
        MVSGCN(3, 5, 2, num_layers=1)
