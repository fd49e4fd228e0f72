from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader, NeighborLoader
from lazygnn.models.sage import SAGE, SAGELayer, mean_of_neighbours
from lazygnn.ops import Csr


def two_layers(graph: Graph, dtype: torch.dtype = torch.float64) -> SAGE:
    torch.manual_seed(0)
    return SAGE(graph.in_channels, 5, graph.task.num_outputs, num_layers=2, dropout=0.0).to(dtype)


def edges_of(graph: Graph) -> Tensor:
    """Source above target, self-loops left out."""
    row, col = graph.adj.row_index(), graph.adj.col.long()
    return torch.stack((col, row))[:, row != col]


def pyg_convolution(layer: SAGELayer) -> Any:
    """PyG's layer with the same weights; its left linear map is for the neighbours and holds the bias."""
    convolution = SAGEConv(*layer.neighbours.shape, aggr="mean").double()
    with torch.no_grad():
        convolution.lin_l.weight.copy_(layer.neighbours.T)
        convolution.lin_l.bias.copy_(layer.own.bias)
        convolution.lin_r.weight.copy_(layer.own.weight.T)
    return convolution


@pytest.mark.parametrize("fanouts", [[-1, -1], [60, 60]], ids=["all", "a fan-out that covers all"])
def test_is_pygs_convolutions_where_all_neighbours_are_drawn(block_graph: Graph, fanouts: list[int]) -> None:
    graph = block_graph.to(torch.float64)
    model = two_layers(graph)
    first, second = (pyg_convolution(layer) for layer in model.layers if isinstance(layer, SAGELayer))
    (batch,) = NeighborLoader(graph, fanouts)
    out = model(batch)
    x, edges = graph.x, edges_of(graph)
    expected = second(first(x, edges).relu(), edges)
    torch.testing.assert_close(out, expected[batch.targets])
    torch.testing.assert_close(model.infer(graph), expected)

    torch.manual_seed(1)
    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (expected[batch.targets] * direction).sum().backward()
    for layer, convolution in zip(model.layers, (first, second), strict=True):
        assert isinstance(layer, SAGELayer)
        for ours, theirs in (
            (layer.neighbours, convolution.lin_l.weight),
            (layer.own.bias, convolution.lin_l.bias),
            (layer.own.weight, convolution.lin_r.weight),
        ):
            assert isinstance(theirs, Tensor)
            assert ours.grad is not None
            assert theirs.grad is not None
            torch.testing.assert_close(ours.grad, theirs.grad.T if theirs.dim() == 2 else theirs.grad)


def test_sparse_features_give_what_dense_ones_give(block_graph: Graph) -> None:
    graph = block_graph.to(torch.float64)
    assert isinstance(graph.x, Tensor)
    rows, columns = graph.x.nonzero().T
    sparse = Csr.from_sorted(rows, columns, graph.x[rows, columns], (60, 3))
    model = two_layers(graph)
    (batch,) = NeighborLoader(graph, [3, 3], seed=2)
    twin = Batch(sparse.select(batch.nodes), batch.y, batch.weight, batch.nodes, batch.num_targets, batch.adjs)
    torch.testing.assert_close(model(twin), model(batch))


def test_the_mean_leaves_the_node_itself_out_and_counts_edges_alike(path_graph: Graph) -> None:
    expected = torch.tensor([[0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5], [0, 0, 1, 0]])
    assert torch.equal(mean_of_neighbours(path_graph.adj).to_dense(), expected)


def test_a_node_without_neighbours_has_itself_alone() -> None:
    graph = Graph.from_edges(
        torch.tensor([[0], [1]]), torch.eye(3), torch.tensor([0, 1, 0]), train_mask=torch.ones(3).bool()
    )
    mean = mean_of_neighbours(graph.adj).to_dense()
    assert torch.equal(mean[2], torch.zeros(3))
    model = two_layers(graph, torch.float32)
    (batch,) = NeighborLoader(graph, [2, 2])
    assert bool(model(batch).isfinite().all())
    torch.testing.assert_close(model(batch), model.infer(graph)[batch.targets])


def test_inference_is_exact_and_draws_nothing(block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = SAGE(3, 5, 3, num_layers=3, norm="batch", dropout=0.5, input_dropout=0.5)
    state = torch.get_rng_state()
    assert torch.equal(model.infer(block_graph), model.infer(block_graph))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training


def test_a_batch_with_other_layers_is_refused(block_graph: Graph) -> None:
    (batch,) = FullLoader(block_graph, 3)
    with pytest.raises(ValueError, match="batch has 3 layers, model has 2"):
        two_layers(block_graph, torch.float32)(batch)
    with pytest.raises(ValueError, match="`num_layers` must be at least 1, got 0"):
        SAGE(3, 4, 5, num_layers=0)
