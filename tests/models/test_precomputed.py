from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.loader import RowLoader
from lazygnn.models import precomputed
from lazygnn.models.layers import Linear
from lazygnn.models.precomputed import SGC, SIGN, smooth_features, stack_features
from lazygnn.ops import Csr


def dense(graph: Graph) -> tuple[Tensor, Tensor]:
    assert isinstance(graph.x, Tensor)
    return graph.adj.to_dense(), graph.x


def sparsely(graph: Graph) -> Graph:
    _, x = dense(graph)
    rows, columns = x.nonzero().T
    return replace(graph, x=Csr.from_sorted(rows, columns, x[rows, columns], (len(x), x.shape[1])))


def test_sgc_is_the_dense_formula(block_graph: Graph) -> None:
    graph = block_graph.to(torch.float64)
    adj, x = dense(graph)
    torch.manual_seed(0)
    model = SGC(3, 3).double()
    smooth = smooth_features(graph, 2)
    expected = adj @ adj @ x @ model.linear.weight + model.linear.bias
    torch.testing.assert_close(model.infer(smooth), expected)
    (batch,) = RowLoader(smooth)
    torch.testing.assert_close(model(batch), expected[batch.targets])


@pytest.mark.parametrize("mlp_layers", [1, 2])
def test_sign_is_the_dense_formula(block_graph: Graph, mlp_layers: int) -> None:
    graph = block_graph.to(torch.float64)
    adj, x = dense(graph)
    torch.manual_seed(0)
    model = SIGN(3, 4, 3, num_layers=2, mlp_layers=mlp_layers, dropout=0.0).double()
    hops = [x, adj @ x, adj @ adj @ x]
    branches = [branch for branch in model.branches if isinstance(branch, Linear)]
    h = torch.cat([hop @ branch.weight + branch.bias for hop, branch in zip(hops, branches, strict=True)], dim=1)
    for linear in model.mlp.linears:
        assert isinstance(linear, Linear)
        h = h.relu() @ linear.weight + linear.bias
    stacked = stack_features(graph, 2)
    torch.testing.assert_close(model.infer(stacked), h)
    (batch,) = RowLoader(stacked)
    torch.testing.assert_close(model(batch), h[batch.targets])


@pytest.mark.parametrize("change", [smooth_features, stack_features])
@pytest.mark.parametrize("block_bytes", [2**28, 2 * 4 * 60, 1], ids=["at once", "two columns", "one column"])
def test_sparse_features_and_blocks_give_the_same(
    block_graph: Graph, monkeypatch: pytest.MonkeyPatch, change: object, block_bytes: int
) -> None:
    assert callable(change)
    graph = block_graph.to(torch.float64)
    expected = change(graph, 3).x
    monkeypatch.setattr(precomputed, "_BLOCK_BYTES", block_bytes)
    torch.testing.assert_close(change(graph, 3).x, expected)
    torch.testing.assert_close(change(sparsely(graph), 3).x, expected)


def test_no_hops_leave_the_features_as_they_are(block_graph: Graph) -> None:
    assert torch.equal(dense(smooth_features(block_graph, 0))[1], dense(block_graph)[1])
    assert torch.equal(dense(stack_features(block_graph, 0))[1], dense(block_graph)[1])


def test_inference_drops_nothing(block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = SIGN(3, 4, 3, num_layers=1, mlp_layers=2, norm="batch", dropout=0.5, input_dropout=0.5)
    graph = stack_features(block_graph, 1)
    assert torch.equal(model.infer(graph), model.infer(graph))
    assert model.training
    groups = model.layer_parameters()
    assert sum(len(group) for group in groups) == len(list(model.parameters()))
