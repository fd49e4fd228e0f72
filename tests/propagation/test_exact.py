"""Exact propagation against autograd through dense steps, in float64."""

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader
from lazygnn.propagation import ExactPropagation, LazyPropagation, Mix
from tests.helpers import dense_steps, open_float64, random_graph, random_rows
from tests.propagation.helpers import gradient, saved_for_backward

N, C, ALPHA = 40, 3, 0.1


@pytest.fixture
def graph() -> Graph:
    return random_graph(N, 3 * N)


@pytest.fixture
def x() -> Tensor:
    return random_rows(N, C, 1)


@pytest.fixture
def grad() -> Tensor:
    return random_rows(N, C, 2)


@pytest.mark.parametrize("num_layers", [1, 2, 10])
@pytest.mark.parametrize("sign", [1, -1])
def test_outputs_and_gradients_are_those_of_dense_steps(
    graph: Graph, x: Tensor, grad: Tensor, num_layers: int, sign: int
) -> None:
    batch, prop = Batch.full(graph, num_layers), ExactPropagation(ALPHA, num_layers, sign=sign)
    leaf = x.clone().requires_grad_()
    expected = dense_steps(graph.adj.to_dense(), leaf, leaf, ALPHA, num_layers, sign=sign)
    expected.backward(grad)
    # a second pass starts from its input again
    for _ in range(2):
        torch.testing.assert_close(prop(x, batch), expected.detach(), rtol=0, atol=1e-12)
        torch.testing.assert_close(gradient(prop, batch, x, grad), leaf.grad, rtol=0, atol=1e-12)


def test_it_is_lazy_propagation_that_ignores_its_histories(graph: Graph, x: Tensor, grad: Tensor) -> None:
    batch = Batch.full(graph, 10)
    prop = ExactPropagation(ALPHA, 10)
    forgetful = LazyPropagation(ALPHA, *(open_float64(N, C, Mix(1.0)) for _ in range(2)))
    torch.testing.assert_close(prop(x, batch), forgetful(x, batch), rtol=0, atol=1e-15)
    torch.testing.assert_close(gradient(prop, batch, x, grad), gradient(forgetful, batch, x, grad), rtol=0, atol=1e-15)


def test_inference_takes_the_steps_of_training(graph: Graph, x: Tensor) -> None:
    prop = ExactPropagation(ALPHA, 3)
    expected = dense_steps(graph.adj.to_dense(), x, x, ALPHA, 3)
    torch.testing.assert_close(prop.infer(x, graph.adj), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_layers", [1, 2, 8, 32])
def test_nothing_is_saved_for_backward(graph: Graph, x: Tensor, num_layers: int) -> None:
    assert saved_for_backward(ExactPropagation(ALPHA, num_layers), Batch.full(graph, num_layers), x) == []


def test_a_part_of_the_graph_is_refused(graph: Graph, x: Tensor) -> None:
    batch = Batch.full(graph, 1)
    cut = Batch(batch.x, batch.y, batch.weight, batch.nodes, N, [graph.adj, graph.adj.rows(10)])
    with pytest.raises(ValueError, match=r"needs the whole graph in a batch; build it with `Batch\.full`"):
        ExactPropagation(ALPHA, 2)(x, cut)


@pytest.mark.parametrize("num_layers", [1, 2, 10])
@pytest.mark.parametrize("sign", [1, -1])
def test_views_and_their_gradient_are_dense(graph: Graph, x: Tensor, grad: Tensor, num_layers: int, sign: int) -> None:
    batch, prop, adj = Batch.full(graph, num_layers), ExactPropagation(ALPHA, num_layers, sign=sign), graph.adj
    leaf, dense_leaf = (x.clone().requires_grad_() for _ in range(2))
    dense = (
        adj.to_dense() @ dense_leaf,
        dense_steps(adj.to_dense(), dense_leaf, dense_leaf, ALPHA, num_layers, sign=sign),
    )
    views, grads = prop.views(leaf, batch), (grad, grad.flip(0))
    torch.autograd.backward(views, grads)
    torch.autograd.backward(dense, grads)
    torch.testing.assert_close(leaf.grad, dense_leaf.grad, rtol=0, atol=1e-12)
    for found in (views, prop.eval().views(x, batch)):
        for view, expected in zip(found, dense, strict=True):
            torch.testing.assert_close(view, expected, rtol=0, atol=1e-12)


def test_views_of_a_part_are_refused(graph: Graph, x: Tensor) -> None:
    prop = ExactPropagation(ALPHA, 2)
    for halo in ("frozen", "none"):
        batch = next(iter(ClusterLoader(graph, torch.tensor([0, 10, N]), 2, halo=halo).sweep()))
        with pytest.raises(ConfigError, match=r"needs the whole graph in a batch; build it with `Batch\.full`"):
            prop.views(x[batch.targets], batch)
    with pytest.raises(GraphError, match="`batch` is of type Graph; make a batch with"):
        prop.views(x, graph)  # type: ignore[arg-type]


def test_it_has_nothing_to_diagnose(graph: Graph, x: Tensor) -> None:
    assert ExactPropagation(ALPHA, 2).diagnose(graph.adj, lambda: x) == {}
