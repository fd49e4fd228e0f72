"""Steps that read and write histories (GNNAutoScale), and the memory between two layers, in float64."""

import pytest
import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import History
from lazygnn.loader import ClusterLoader
from lazygnn.propagation import ExactPropagation, HistoricalPropagation, LayerMemory, Mix
from tests.helpers import open_float64, random_rows

N, L = 60, 3


def histories(channels: int) -> list[History]:
    return [open_float64(N, channels, Mix(1.0)) for _ in range(L - 1)]


@pytest.fixture
def graph(block_graph: Graph) -> Graph:
    return block_graph.to(torch.float64)


@pytest.fixture
def part(graph: Graph) -> Batch:
    """A part of the graph with its neighbors, which are the halo."""
    return next(iter(ClusterLoader(graph, torch.tensor([0, 10, 25, 26, 45, 60]), L, halo="features")))


def test_memory_passes_gradients_to_the_targets_only(part: Batch) -> None:
    (history, _) = histories(5)
    stored = random_rows(N, 5, 1)
    history.push(torch.arange(N), stored, stored)
    x = random_rows(part.num_targets, 5, 2).requires_grad_()
    seen = LayerMemory(2, [history])(0, x, part)
    assert torch.equal(seen, torch.cat((x, stored[part.nodes[part.num_targets :]])))
    grad = random_rows(len(part.nodes), 5, 3)
    seen.backward(grad)
    assert x.grad is not None
    assert torch.equal(x.grad, grad[: part.num_targets])


def test_without_a_halo_steps_with_histories_are_appnp(graph: Graph) -> None:
    batch = Batch.full(graph, L)
    one, other = (random_rows(N, 4, 1).requires_grad_() for _ in range(2))
    historical, exact = HistoricalPropagation(0.2, L, histories(4)), ExactPropagation(0.2, L)
    out, expected = historical(one, batch), exact(other, batch)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    grad = random_rows(N, 4, 2)
    out.backward(grad)
    expected.backward(grad)
    assert one.grad is not None
    torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(historical.infer(one.detach(), graph.adj), expected.detach(), rtol=0, atol=1e-12)
