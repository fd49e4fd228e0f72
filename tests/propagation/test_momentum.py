"""The memory whose halo follows estimates, in float64."""

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.loader import ClusterLoader
from lazygnn.propagation import LayerMemory, Mix
from lazygnn.propagation.momentum import MomentumMemory
from tests.helpers import open_float64, random_rows

N, C = 60, 5


@pytest.fixture
def part(block_graph: Graph) -> Batch:
    graph = block_graph.to(torch.float64)
    return next(iter(ClusterLoader(graph, torch.tensor([0, 10, 25, 26, 45, 60]), 2, halo="features")))


def opened() -> tuple[StoredHistory, Tensor]:
    history, stored = open_float64(N, C, Mix(1.0)), random_rows(N, C, 1)
    history.push(torch.arange(N), stored, stored)
    return history, stored


@pytest.mark.parametrize("momentum", [0.0, 0.3, 1.0])
def test_the_halo_moves_towards_its_estimate_is_stored_and_read(part: Batch, momentum: float) -> None:
    history, stored = opened()
    size, halo = part.num_targets, part.nodes[part.num_targets :]
    x, estimate = random_rows(size, C, 2).requires_grad_(), random_rows(len(halo), C, 3)
    out = MomentumMemory(2, [history], momentum=momentum)(0, x, part, estimate)
    moved = (1 - momentum) * stored[halo] + momentum * estimate
    torch.testing.assert_close(out, torch.cat((x, moved)), rtol=0, atol=1e-12)
    stored[part.targets], stored[halo] = x.detach(), moved
    torch.testing.assert_close(history.values.read(torch.arange(N)), stored, rtol=0, atol=1e-12)
    grad = random_rows(len(part.nodes), C, 4)
    out.backward(grad)
    assert x.grad is not None
    assert torch.equal(x.grad, grad[:size])


def test_without_an_estimate_it_is_a_layer_memory(part: Batch) -> None:
    x = random_rows(part.num_targets, C, 2)
    found, expected = (
        kind(2, [opened()[0]], **options)(0, x, part)
        for kind, options in ((MomentumMemory, {"momentum": 0.5}), (LayerMemory, {}))
    )
    assert torch.equal(found, expected)


def test_a_momentum_outside_of_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`momentum` must be in \[0, 1\], got -0.5"):
        MomentumMemory(2, momentum=-0.5)
