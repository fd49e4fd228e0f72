import math
from collections.abc import Sequence
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import History
from lazygnn.models import GCNII
from lazygnn.models.gcnii import GCN2Layer
from lazygnn.models.layers import NormKind
from lazygnn.propagation import Mix
from tests.helpers import open_float64, random_rows


def make(
    num_layers: int,
    *,
    shared_weights: bool = True,
    norm: NormKind = "none",
    dropout: float = 0.0,
    histories: Sequence[History] = (),
) -> GCNII:
    torch.manual_seed(0)
    return GCNII(
        3,
        8,
        4,
        num_layers=num_layers,
        alpha=0.2,
        theta=0.7,
        shared_weights=shared_weights,
        norm=norm,
        dropout=dropout,
        input_dropout=dropout,
        histories=histories,
    ).double()


def layers(model: GCNII) -> list[GCN2Layer]:
    return cast(list[GCN2Layer], list(model.layers))


@pytest.mark.parametrize("shared_weights", [True, False])
@pytest.mark.parametrize("num_layers", [1, 4])
def test_gcnii_equals_that_of_torch_geometric(graph: Graph, num_layers: int, shared_weights: bool) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    model = make(num_layers, shared_weights=shared_weights)
    theirs = []
    for index, layer in enumerate(layers(model)):
        conv = nn.GCN2Conv(8, 0.2, 0.7, index + 1, shared_weights=shared_weights, normalize=False).double()
        conv.weight1.data = layer.weight.data.clone()
        if layer.initial_weight is not None:
            conv.weight2.data = layer.initial_weight.data.clone()
        theirs.append(conv)
    edges, value = torch.stack((graph.adj.col.long(), graph.adj.row_index())), graph.adj.value
    assert isinstance(graph.x, Tensor)
    first, last = (
        [p.detach().clone().requires_grad_() for p in part.parameters()] for part in (model.first, model.last)
    )
    x = x_0 = F.relu(graph.x @ first[0] + first[1])
    for conv in theirs:
        x = F.relu(conv(x, x_0, edges, value))
    expected = x @ last[0] + last[1]
    ours = model(Batch.full(graph, num_layers))
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)
    grad = torch.randn(60, 4, dtype=torch.float64)
    ours.backward(grad)
    expected.backward(grad)
    for conv, layer in zip(theirs, layers(model), strict=True):
        torch.testing.assert_close(layer.weight.grad, conv.weight1.grad, rtol=0, atol=1e-12)
        if layer.initial_weight is not None:
            torch.testing.assert_close(layer.initial_weight.grad, conv.weight2.grad, rtol=0, atol=1e-12)
    for p, q in zip([*model.first.parameters(), *model.last.parameters()], [*first, *last], strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-12)


def test_a_layer_is_the_equation_and_approaches_the_identity_with_depth(graph: Graph) -> None:
    model = make(5)
    assert [layer.beta for layer in layers(model)] == [math.log(0.7 / depth + 1) for depth in range(1, 6)]
    layer = layers(model)[2]
    x, x_0 = (random_rows(60, 8, seed) for seed in (1, 2))
    identity = torch.eye(8, dtype=torch.float64)
    mapping = (1 - layer.beta) * identity + layer.beta * layer.weight
    expected = (0.8 * graph.adj.to_dense() @ x + 0.2 * x_0) @ mapping
    torch.testing.assert_close(layer(x, x_0, graph.adj), expected, rtol=0, atol=1e-12)


def test_dropout_does_not_act_on_the_initial_features(graph: Graph) -> None:
    model = make(3, dropout=0.5)
    seen: list[Tensor] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda _module, inputs, _out: seen.append(inputs[1]))
    model.input_dropout = 0.0
    model(Batch.full(graph, 3))
    assert isinstance(graph.x, Tensor)
    assert all(torch.equal(x_0, F.relu(model.first(graph.x))) for x_0 in seen)
    assert not torch.equal(model(Batch.full(graph, 3)), model(Batch.full(graph, 3)))


def test_histories_are_stored_before_dropout(graph: Graph) -> None:
    histories = [open_float64(60, 8, Mix(1.0)) for _ in range(2)]
    model = make(3, norm="batch", dropout=0.5, histories=histories)
    outputs: list[Tensor] = []
    for norm in model.norms:
        norm.register_forward_hook(lambda _module, _inputs, out: outputs.append(out.detach()))
    model(Batch.full(graph, 3))
    for history, output in zip(histories, outputs, strict=False):
        assert torch.equal(history.values.read(torch.arange(60)), F.relu(output))


def test_the_output_of_the_last_linear_layer_is_returned_unchanged(graph: Graph) -> None:
    model = make(2, dropout=0.9)
    outputs: list[Tensor] = []
    model.last.register_forward_hook(lambda _module, _inputs, out: outputs.append(out))
    assert torch.equal(model(Batch.full(graph, 2)), outputs[0])


def test_layers_begin_with_the_convolutions_and_end_with_the_linear_ones() -> None:
    model = make(3, norm="batch", shared_weights=False)
    groups = model.layer_parameters()
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in model.parameters())
    assert [[tuple(p.shape) for p in group] for group in groups[:3]] == [[(8, 8), (8, 8), (8,), (8,)]] * 3
    assert [[tuple(p.shape) for p in group] for group in groups[3:]] == [[(3, 8), (8,)], [(8, 4), (4,)]]


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="`num_layers` must be at least 1, got 0"):
        make(0)


def test_the_embedding_is_what_the_last_layer_reads(block_graph: Graph) -> None:
    model = make(3).float()
    embedding = model.embed(block_graph)
    assert embedding.shape == (60, 8)
    torch.testing.assert_close(model.last(embedding), model.infer(block_graph))
