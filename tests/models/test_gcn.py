from collections.abc import Callable
from dataclasses import replace
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


def make(num_layers: int) -> GCN:
    torch.manual_seed(0)
    model = GCN(3, 8, 4, num_layers=num_layers, dropout=0.0).double()
    for parameter in model.parameters():
        # biases start at zero, which would hide where they enter
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_gcn_equals_that_of_torch_geometric(graph: Graph, num_layers: int) -> None:
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


def test_sparse_features_give_the_same_outputs_and_gradients(
    graph: Graph, make_sparse: Callable[[Graph], Graph]
) -> None:
    assert isinstance(graph.x, Tensor)
    # entries that are not stored
    dense = replace(graph, x=graph.x.clamp(min=0))
    one, other = make(2), make(2)
    first, second = one(Batch.full(make_sparse(dense), 2)), other(Batch.full(dense, 2))
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)
    first.square().sum().backward()
    second.square().sum().backward()
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-12)
