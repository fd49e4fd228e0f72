"""GraphFM against GNNAutoScale and against formulas, in float64."""

from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.loader import ClusterLoader
from lazygnn.models import GCN, GraphFM
from lazygnn.propagation import Mix
from tests.helpers import open_float64, random_rows

N, L, H = 60, 3, 8
PTR = torch.tensor([0, 10, 25, 45, 60])
Norm = Literal["batch", "layer", "none"]


def histories() -> list[StoredHistory]:
    return [open_float64(N, H, Mix(1.0)) for _ in range(L - 1)]


def make(momentum: float, norm: Norm = "none", dropout: float = 0.0) -> GraphFM:
    torch.manual_seed(0)
    model = GraphFM(3, H, 3, num_layers=L, norm=norm, dropout=dropout, histories=histories(), momentum=momentum)
    return model.double()


@pytest.mark.parametrize("norm", ["none", "batch", "layer"])
def test_without_momentum_it_is_gas_bit_for_bit(graph: Graph, norm: Norm) -> None:
    fm = make(0.0, norm, dropout=0.5)
    torch.manual_seed(0)
    kept = histories()
    gas = GCN(3, H, 3, num_layers=L, norm=norm, dropout=0.5, histories=kept).double()
    for model in (fm, gas):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in [*ClusterLoader(graph, PTR, L, halo="features", seed=2)] * 2:
            optimizer.zero_grad()
            model.loss(batch, graph.task).backward()
            optimizer.step()
    assert all(torch.equal(value, gas.state_dict()[name]) for name, value in fm.state_dict().items())
    for one, other in zip(fm.memory.histories, kept, strict=True):
        assert isinstance(one, StoredHistory)
        assert torch.equal(one.values.read(torch.arange(N)), other.values.read(torch.arange(N)))


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_an_estimate_sums_over_the_neighbors_in_the_batch_alone(graph: Graph, norm: Norm) -> None:
    model = make(0.25, norm)
    stored = random_rows(N, H, 1)
    history = model.memory.histories[0]
    history.push(torch.arange(N), stored, stored)
    batch = next(iter(ClusterLoader(graph, PTR, L, halo="features")))
    model(batch)
    assert isinstance(batch.x, Tensor)
    halo = batch.nodes[batch.num_targets :]
    weight, bias, *_ = model.layer_parameters()[0]
    between = graph.adj.to_dense()[halo][:, batch.targets]
    estimate = model.norms[0](between @ batch.x[: batch.num_targets] @ weight + bias).relu()
    expected = 0.75 * stored[halo] + 0.25 * estimate
    assert isinstance(history, StoredHistory)
    torch.testing.assert_close(history.values.read(halo), expected.detach(), rtol=0, atol=1e-12)


def test_estimates_leave_the_statistics_of_batch_norm_alone_and_use_them(graph: Graph) -> None:
    with_momentum, without = make(1.0, "batch"), make(0.0, "batch")
    batch = next(iter(ClusterLoader(graph, PTR, L, halo="features")))
    for model in (with_momentum, without):
        model(batch)
    norm = with_momentum.norms[0]
    assert norm.training
    assert torch.equal(norm.running_mean, without.norms[0].running_mean)  # type: ignore[arg-type]
    assert isinstance(batch.x, Tensor)
    halo = batch.nodes[batch.num_targets :]
    weight, bias, *_ = with_momentum.layer_parameters()[0]
    between = graph.adj.to_dense()[halo][:, batch.targets]
    sums = between @ batch.x[: batch.num_targets] @ weight + bias
    history = with_momentum.memory.histories[0]
    assert isinstance(history, StoredHistory)
    expected = norm.eval()(sums).relu().detach()
    torch.testing.assert_close(history.values.read(halo), expected, rtol=0, atol=1e-12)


def test_with_full_momentum_a_halo_that_knows_no_other_neighbor_is_exact() -> None:
    # a matrix without self-loops: node 3 has one neighbor, which is in the batch
    graph = Graph.from_edges(
        np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]),
        np.eye(4, 3),
        np.array([0, 0, 1, 1]),
        train_mask=np.ones(4, bool),
    ).to(torch.float64)
    dense = graph.adj.to_dense().fill_diagonal_(0)
    row, col = dense.nonzero(as_tuple=True)
    adj = type(graph.adj).from_sorted(row, col, dense[row, col], (4, 4))
    graph = Graph(graph.x, graph.y, adj, graph.degree, graph.task, graph.masks)
    torch.manual_seed(0)
    history = open_float64(4, H, Mix(1.0))
    model = GraphFM(3, H, 2, num_layers=2, dropout=0.0, histories=[history], momentum=1.0).double()
    first = next(iter(ClusterLoader(graph, torch.tensor([0, 3, 4]), 2, halo="features").sweep()))
    assert first.nodes.tolist() == [0, 1, 2, 3]
    expected = model(Batch.full(graph, 2))
    torch.testing.assert_close(model(first), expected[:3], rtol=0, atol=1e-12)


def test_inference_and_full_batch_need_no_histories(graph: Graph) -> None:
    torch.manual_seed(0)
    model = GraphFM(3, H, 3, num_layers=L, dropout=0.0).double()
    full = model(Batch.full(graph, L))
    torch.testing.assert_close(full, model.infer(graph), rtol=0, atol=1e-12)
    batch = next(iter(ClusterLoader(graph, PTR, L, halo="features")))
    with pytest.raises(ValueError, match="a halo needs histories in training"):
        model(batch)
