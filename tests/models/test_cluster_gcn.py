from itertools import pairwise

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.models.cluster_gcn import ClusterGCN
from lazygnn.models.gcn import GCN, GCNLayer


def make(graph: Graph, diag_lambda: float) -> ClusterGCN:
    torch.manual_seed(0)
    gcn = GCN(graph.in_channels, 5, graph.task.num_outputs, num_layers=3, dropout=0.0)
    return ClusterGCN(gcn, diag_lambda=diag_lambda).double()


def dense_outputs(model: ClusterGCN, edges: Tensor, x: Tensor) -> Tensor:
    """Eq. (11) by hand: `relu((A' + lambda diag(A')) x W)` with `A' = (D + I)^-1 (A + I)`, for 0/1 `edges`."""
    with_loops = edges + torch.eye(len(edges), dtype=x.dtype)
    mean = with_loops / with_loops.sum(dim=1, keepdim=True)
    enhanced = mean + model.diag_lambda * mean.diag().diag()
    layers = [layer for layer in model.gcn.layers if isinstance(layer, GCNLayer)]
    for layer, _ in pairwise(layers):
        x = (enhanced @ x @ layer.weight + layer.bias).relu()
    return enhanced @ x @ layers[-1].weight + layers[-1].bias


def dense_edges(graph: Graph) -> Tensor:
    return (graph.adj.to_dense() > 0).double().fill_diagonal_(0)


@pytest.mark.parametrize("diag_lambda", [0.0, 0.7])
def test_one_part_is_full_batch_and_the_dense_formula(graph: Graph, diag_lambda: float) -> None:
    model = make(graph, diag_lambda)
    (full,) = FullLoader(graph, 3)
    (part,) = ClusterLoader(graph, torch.tensor([0, 60]), 3, halo="none")
    assert isinstance(graph.x, Tensor)
    expected = dense_outputs(model, dense_edges(graph), graph.x)
    torch.testing.assert_close(model(full), expected)
    assert torch.equal(model(part), model(full))
    torch.testing.assert_close(model.infer(graph), expected)


def test_a_batch_is_normalized_among_its_own_nodes(graph: Graph) -> None:
    model = make(graph, 0.3)
    ptr = torch.tensor([0, 10, 25, 40, 60])
    for batch in ClusterLoader(graph, ptr, 3, parts_per_batch=2, halo="none", seed=1):
        assert batch.num_targets == len(batch.nodes) < 60
        assert isinstance(batch.x, Tensor)
        # edges between the two parts of a batch count
        inside = dense_edges(graph)[batch.nodes][:, batch.nodes]
        torch.testing.assert_close(model(batch), dense_outputs(model, inside, batch.x))


def test_gradients_are_those_of_the_dense_formula(graph: Graph) -> None:
    model = make(graph, 0.3)
    (batch,) = FullLoader(graph, 3)
    assert isinstance(graph.x, Tensor)
    weights = [p for group in model.layer_parameters() for p in group]
    ours = torch.autograd.grad(model(batch).pow(2).sum(), weights)
    theirs = torch.autograd.grad(dense_outputs(model, dense_edges(graph), graph.x).pow(2).sum(), weights)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_a_halo_is_refused(block_graph: Graph) -> None:
    ptr = torch.tensor([0, 30, 60])
    batch: Batch = next(iter(ClusterLoader(block_graph, ptr, 3, halo="frozen")))
    with pytest.raises(
        ValueError,
        match=r"needs batches without a halo, got a matrix of shape .*; build the loader with `halo=\"none\"`",
    ):
        make(block_graph, 0.0).float()(batch)
    with pytest.raises(ValueError, match=r"`diag_lambda` must not be negative, got -1"):
        make(block_graph, -1.0)
