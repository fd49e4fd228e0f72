from itertools import pairwise
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.models import GCN
from lazygnn.models.gcn import GCNLayer
from lazygnn.models.layers import NormKind
from lazygnn.ops import Csr


@pytest.fixture
def graph(block_graph: Graph) -> Graph:
    return block_graph.to(torch.float64)


def make(num_layers: int, *, norm: NormKind = "none", dropout: float = 0.0) -> GCN:
    torch.manual_seed(0)
    model = GCN(3, 8, 4, num_layers=num_layers, norm=norm, dropout=dropout, input_dropout=dropout).double()
    for parameter in model.parameters():
        # biases start at zero, which would hide where they enter
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def with_sparse_features(graph: Graph) -> Graph:
    assert isinstance(graph.x, Tensor)
    row, col = (graph.x * (graph.x > 0)).nonzero(as_tuple=True)
    sparse = Csr.from_sorted(row, col, graph.x[row, col], (len(graph.x), graph.x.shape[1]))
    return Graph(sparse, graph.y, graph.adj, graph.degree, graph.task, graph.masks)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_gcn_is_that_of_torch_geometric(graph: Graph, num_layers: int) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    model = make(num_layers)
    sizes = [3, *[8] * (num_layers - 1), 4]
    theirs = [nn.GCNConv(a, b, normalize=False).double() for a, b in pairwise(sizes)]
    for conv, layer in zip(theirs, cast(list[GCNLayer], model.layers), strict=True):
        conv.lin.weight.data, conv.bias.data = layer.weight.data.T.clone(), layer.bias.data.clone()
    edges, value = torch.stack((graph.adj.col.long(), graph.adj.row_index())), graph.adj.value
    assert isinstance(graph.x, Tensor)
    x = graph.x
    for index, conv in enumerate(theirs):
        x = conv(x if index == 0 else F.relu(x), edges, value)
    ours = model(Batch.full(graph, num_layers))
    torch.testing.assert_close(ours, x, rtol=0, atol=1e-12)
    grad = torch.randn(60, 4, dtype=torch.float64)
    ours.backward(grad)
    x.backward(grad)
    for conv, layer in zip(theirs, cast(list[GCNLayer], model.layers), strict=True):
        torch.testing.assert_close(layer.weight.grad, conv.lin.weight.grad.T, rtol=0, atol=1e-12)
        torch.testing.assert_close(layer.bias.grad, conv.bias.grad, rtol=0, atol=1e-12)


def test_sparse_features_give_the_same_outputs_and_gradients(graph: Graph) -> None:
    sparse = with_sparse_features(graph)
    assert isinstance(sparse.x, Csr)
    dense = Graph(sparse.x.to_dense(), graph.y, graph.adj, graph.degree, graph.task, graph.masks)
    one, other = make(2), make(2)
    first, second = one(Batch.full(sparse, 2)), other(Batch.full(dense, 2))
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)
    first.square().sum().backward()
    second.square().sum().backward()
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-12)


def test_dropout_falls_on_inputs_and_between_layers_and_in_training_alone(graph: Graph) -> None:
    batch = Batch.full(graph, 2)
    model = make(2, dropout=0.5)
    assert not torch.equal(model(batch), model(batch))
    model.input_dropout = 0.0
    assert not torch.equal(model(batch), model(batch))
    model.dropout = 0.0
    assert torch.equal(model(batch), model(batch))
    model.dropout = model.input_dropout = 0.5
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_layers_cover_every_parameter_once_from_input_to_output() -> None:
    model = make(3, norm="layer")
    groups = model.layer_parameters()
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in model.parameters())
    assert [group[0].shape for group in groups] == [(3, 8), (8, 8), (8, 4)]
    assert [len(group) for group in groups] == [4, 4, 2]


def test_a_batch_of_another_depth_is_refused(graph: Graph) -> None:
    with pytest.raises(ValueError, match="batch has 3 layers, model has 2; build the loader with `num_layers=2`"):
        make(2)(Batch.full(graph, 3))
    with pytest.raises(ValueError, match="`num_layers` must be at least 1, got 0"):
        make(0)
