import pytest
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.loader import RowLoader
from lazygnn.models import SIGN
from lazygnn.models.layers import Linear
from lazygnn.transforms import stack_features


@pytest.mark.parametrize("mlp_layers", [1, 2])
def test_sign_is_the_dense_formula(graph: Graph, mlp_layers: int) -> None:
    torch.manual_seed(0)
    model = SIGN(3, 4, 3, num_layers=2, mlp_layers=mlp_layers, dropout=0.0).double()
    assert isinstance(graph.x, Tensor)
    adj = graph.adj.to_dense()
    hops = [graph.x, adj @ graph.x, adj @ adj @ graph.x]
    branches = [branch for branch in model.branches if isinstance(branch, Linear)]
    h = torch.cat([hop @ branch.weight + branch.bias for hop, branch in zip(hops, branches, strict=True)], dim=1)
    for linear in model.mlp.linears:
        assert isinstance(linear, Linear)
        h = h.relu() @ linear.weight + linear.bias
    stacked = stack_features(graph, 2)
    torch.testing.assert_close(model.infer(stacked), h)
    (batch,) = RowLoader(stacked)
    torch.testing.assert_close(model(batch), h[batch.targets])


def test_inference_applies_no_dropout_and_restores_the_mode(block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = SIGN(3, 4, 3, num_layers=1, mlp_layers=2, norm="batch", dropout=0.5, input_dropout=0.5)
    graph = stack_features(block_graph, 1)
    assert torch.equal(model.infer(graph), model.infer(graph))
    assert model.training


def test_the_output_of_the_mlp_is_returned_unchanged(block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = SIGN(3, 4, 3, num_layers=1, mlp_layers=2, dropout=0.9, input_dropout=0.5)
    outputs: list[Tensor] = []
    model.mlp.linears[-1].register_forward_hook(lambda _module, _inputs, out: outputs.append(out))
    (batch,) = RowLoader(stack_features(block_graph, 1))
    assert torch.equal(model(batch), outputs[0])


def test_the_branches_are_one_layer_before_those_of_the_mlp() -> None:
    model = SIGN(3, 4, 3, num_layers=1, mlp_layers=2, norm="batch")
    groups = model.layer_parameters()
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in model.parameters())
    # weights and biases of two branches, weight and bias of a norm over both
    assert [tuple(p.shape) for p in groups[0]] == [(3, 4), (4,), (3, 4), (4,), (8,), (8,)]
    assert [group[0].shape for group in groups[1:]] == [(8, 4), (4, 3)]
