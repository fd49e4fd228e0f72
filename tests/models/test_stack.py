"""The layer loop against written-out formulas in float64, for every model that uses it."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lazygnn import inference
from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.models import GCN, SAGE, Stack
from lazygnn.models.gcn import GCNLayer
from lazygnn.models.layers import Linear, NormKind
from lazygnn.models.sage import SAGELayer, mean_of_neighbors
from lazygnn.models.stack import Layer
from lazygnn.ops import Adjacency, Csr, aggregate
from lazygnn.propagation import Mix
from tests.helpers import open_float64

N = 60


class SumLayer(Layer):
    """`A x W`: the least that a layer must have."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.linear = Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor | Csr, adj: Adjacency) -> Tensor:
        return aggregate(adj, self.linear(x))

    infer = forward


class Sum(Stack):
    layer = SumLayer


def dense_layer(layer: nn.Module, x: Tensor, adj: Tensor) -> Tensor:
    """One layer, written out."""
    match layer:
        case GCNLayer():
            return adj @ x @ layer.weight + layer.bias
        case SAGELayer():
            return x @ layer.own.weight + layer.own.bias + adj @ x @ layer.neighbors
        case SumLayer():
            return adj @ x @ layer.linear.weight
    raise AssertionError(f"no formula for {layer}")


def dense_matrix(model: Stack, graph: Graph) -> Tensor:
    return (mean_of_neighbors(graph.adj) if isinstance(model, SAGE) else graph.adj).to_dense()


def dense_outputs(model: Stack, graph: Graph, x: Tensor) -> Tensor:
    """`layer(relu(norm(layer(...))))` with dense matrices."""
    adj = dense_matrix(model, graph)
    x = dense_layer(model.layers[0], x, adj)
    for layer, norm in zip(model.layers[1:], model.norms, strict=True):
        x = dense_layer(layer, F.relu(norm(x)), adj)
    return x


def full_batch(model: Stack, graph: Graph) -> Batch:
    """The whole graph, with the matrix that the model expects."""
    matrix = mean_of_neighbors(graph.adj) if isinstance(model, SAGE) else graph.adj
    (batch,) = FullLoader(graph, len(model.layers))
    return Batch(batch.x, batch.y, batch.weight, batch.nodes, N, [matrix] * len(model.layers))


def make(
    kind: type[Stack],
    num_layers: int = 3,
    *,
    norm: NormKind = "none",
    dropout: float = 0.0,
    input_dropout: float = 0.0,
    histories: list[StoredHistory] | None = None,
) -> Stack:
    torch.manual_seed(0)
    model = kind(
        3,
        8,
        4,
        num_layers=num_layers,
        norm=norm,
        dropout=dropout,
        input_dropout=input_dropout,
        histories=histories or (),
    ).double()
    for parameter in model.parameters():
        # biases start at zero, which would hide where they enter
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def open_histories(num: int) -> list[StoredHistory]:
    return [open_float64(N, 8, Mix(1.0)) for _ in range(num)]


def record_outputs(modules: nn.ModuleList) -> list[Tensor]:
    """Collects what these modules return from now on."""
    outputs: list[Tensor] = []
    for module in modules:
        module.register_forward_hook(lambda _module, _inputs, out: outputs.append(out))
    return outputs


every_stack = pytest.mark.parametrize("kind", [GCN, SAGE, Sum])


@every_stack
@pytest.mark.parametrize("norm", ["none", "layer", "batch"])
@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_outputs_and_gradients_are_those_of_the_dense_formula(
    graph: Graph, kind: type[Stack], norm: NormKind, num_layers: int
) -> None:
    model = make(kind, num_layers, norm=norm)
    assert isinstance(graph.x, Tensor)
    weights = list(model.parameters())
    grad = torch.randn(N, 4, dtype=torch.float64)
    out, expected = model(full_batch(model, graph)), dense_outputs(model, graph, graph.x)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-11)
    ours, theirs = (torch.autograd.grad(result, weights, grad) for result in (out, expected))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@every_stack
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_inference_is_the_dense_formula_without_dropout(
    graph: Graph, kind: type[Stack], sparse: bool, make_sparse: Callable[[Graph], Graph]
) -> None:
    model = make(kind, norm="batch", dropout=0.9, input_dropout=0.9)
    for norm in model.norms:
        assert isinstance(norm, nn.BatchNorm1d)
        assert norm.running_mean is not None
        norm.running_mean += 0.3
    state = torch.get_rng_state()
    found = model.infer(make_sparse(graph) if sparse else graph)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert not found.requires_grad
    assert isinstance(graph.x, Tensor)
    torch.testing.assert_close(found, dense_outputs(model.eval(), graph, graph.x).detach(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [GCN, SAGE])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("rows", [1, 7])
def test_inference_in_blocks_equals_inference_at_once(
    graph: Graph,
    kind: type[Stack],
    sparse: bool,
    rows: int,
    make_sparse: Callable[[Graph], Graph],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, graph = make(kind, norm="layer"), make_sparse(graph) if sparse else graph
    expected = model.infer(graph)
    sizes: list[int] = []
    model.norms[0].register_forward_hook(lambda _module, _inputs, out: sizes.append(len(out)))
    monkeypatch.setattr(inference, "INFERENCE_ROWS", rows)
    # two columns at a time
    monkeypatch.setattr(inference, "INFERENCE_BYTES", 2 * 5 * 8 * N)
    torch.testing.assert_close(model.infer(graph), expected, rtol=0, atol=1e-12)
    assert max(sizes) == rows
    assert sum(sizes) == N


@every_stack
@pytest.mark.parametrize(("num_layers", "dropout", "input_dropout"), [(2, 0.5, 0.0), (1, 0.0, 0.5)])
def test_dropout_acts_on_features_and_between_layers_in_training_only(
    graph: Graph, kind: type[Stack], num_layers: int, dropout: float, input_dropout: float
) -> None:
    model = make(kind, num_layers, dropout=dropout, input_dropout=input_dropout)
    batch = full_batch(model, graph)
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


@every_stack
@pytest.mark.parametrize("num_layers", [1, 3])
def test_the_output_of_the_last_layer_is_returned_unchanged(graph: Graph, kind: type[Stack], num_layers: int) -> None:
    model = make(kind, num_layers, norm="layer", dropout=0.9, input_dropout=0.5)
    outputs = record_outputs(model.layers)
    out = model(full_batch(model, graph))
    assert torch.equal(out, outputs[-1])
    # neither dropout, which would leave a tenth of the entries, nor ReLU; a row without any kept input is zero
    assert float((out == 0).double().mean()) < 0.5
    assert bool((out < 0).any())


@every_stack
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_histories_are_stored_before_dropout(graph: Graph, kind: type[Stack], norm: NormKind) -> None:
    histories = open_histories(2)
    model = make(kind, norm=norm, dropout=0.5, histories=histories)
    outputs = record_outputs(model.layers if norm == "none" else model.norms)
    model(full_batch(model, graph))
    for history, output in zip(histories, outputs, strict=False):
        assert torch.equal(history.values.read(torch.arange(N)), F.relu(output.detach()))


@every_stack
def test_dropout_acts_on_what_is_read_for_the_halo(graph: Graph, kind: type[Stack]) -> None:
    histories = open_histories(1)
    histories[0].push(torch.arange(N), *[torch.ones(N, 8, dtype=torch.float64)] * 2)
    model = make(kind, 2, dropout=0.5, histories=histories)
    batch = next(iter(ClusterLoader(graph, torch.tensor([0, 20, 60]), 2, halo="features")))
    seen: list[Tensor] = []
    model.layers[1].register_forward_hook(lambda _module, inputs, _out: seen.append(inputs[0]))
    model(batch)
    halo = seen[0][batch.num_targets :]
    assert len(halo) > 0
    assert sorted(halo.unique().tolist()) == [0, 2]


@every_stack
def test_fresh_histories_make_a_batch_exact_on_its_targets(graph: Graph, kind: type[Stack]) -> None:
    model = make(kind, norm="layer", histories=open_histories(2))
    whole = full_batch(model, graph)
    model.fill(whole)
    expected = dense_outputs(model, graph, whole.x if isinstance(whole.x, Tensor) else whole.x.to_dense())
    parts = ClusterLoader(
        Graph(graph.x, graph.y, whole.adjs[0], graph.degree, graph.task, graph.masks),
        torch.tensor([0, 10, 25, 60]),
        3,
        halo="features",
    )
    for batch in parts:
        assert len(batch.nodes) > batch.num_targets
        torch.testing.assert_close(model(batch), expected[batch.targets], rtol=0, atol=1e-12)


@every_stack
def test_layers_cover_every_parameter_once_from_input_to_output(kind: type[Stack]) -> None:
    model = make(kind, norm="layer")
    groups = model.layer_parameters()
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in model.parameters())
    assert [group[0].shape for group in groups] == [(3, 8), (8, 8), (8, 4)]
    # the weight and bias of a norm belong to the layer before it
    for group, norm in zip(groups, model.norms, strict=False):
        assert [id(p) for p in group[-2:]] == [id(p) for p in norm.parameters()]


@every_stack
def test_widths_are_those_of_the_constructor(kind: type[Stack]) -> None:
    for num_layers in (1, 2, 3):
        sizes = [3, *[8] * (num_layers - 1), 4]
        shapes = [next(layer.parameters()).shape for layer in make(kind, num_layers).layers]
        assert shapes == list(pairwise(sizes))


@every_stack
def test_a_wrong_number_of_layers_is_refused(graph: Graph, kind: type[Stack]) -> None:
    with pytest.raises(ValueError, match="batch has 3 layers, model has 2; build the loader with `num_layers=2`"):
        make(kind, 2)(Batch.full(graph, 3))
    with pytest.raises(ValueError, match="`num_layers` must be at least 1, got 0"):
        make(kind, 0)
    with pytest.raises(ValueError, match="3 layers need 2 histories or none, got 1"):
        make(kind, 3, histories=open_histories(1))


@pytest.mark.parametrize("kind", [GCN, SAGE])
def test_the_embedding_is_what_the_last_layer_reads(kind: type[Stack], block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = kind(3, 8, 3, num_layers=3, norm="layer")
    embedding = model.embed(block_graph)
    assert embedding.shape == (60, 8)
    adj = dense_matrix(model, block_graph)
    torch.testing.assert_close(dense_layer(model.layers[-1], embedding, adj), model.infer(block_graph))
    with pytest.raises(ConfigError, match="the model has one layer, so there is no hidden layer to return; train with"):
        kind(3, 8, 3, num_layers=1).embed(block_graph)
