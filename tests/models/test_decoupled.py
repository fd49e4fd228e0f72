from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn import inference
from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import History, Start, StoredHistory
from lazygnn.loader import ClusterLoader
from lazygnn.methods import build, resolve
from lazygnn.models import MLP, Decoupled
from lazygnn.models.decoupled import LazyGNN
from lazygnn.models.layers import Linear, NormKind
from lazygnn.propagation import ExactPropagation, LazyPropagation, Mix, NoPropagation
from lazygnn.propagation.response import fit_response
from lazygnn.training import evaluate


class Untouchable(History):
    """A history that raises an error when it is used."""

    def start(
        self, nodes: Tensor, num_targets: int, fresh: Tensor, change: float = 1.0, *, with_previous: bool = True
    ) -> Start:
        raise AssertionError("a history was read")

    def push(self, targets: Tensor, values: Tensor, fresh: Tensor) -> None:
        raise AssertionError("a history was written")

    def prefetch(self, nodes: Tensor, num_targets: int) -> None:
        raise AssertionError("a history was read ahead")

    @property
    def num_bytes(self) -> int:
        return 0


def mlp(in_channels: int, out_channels: int, *, norm: NormKind = "none") -> MLP:
    torch.manual_seed(0)
    return MLP(in_channels, 8, out_channels, mlp_layers=2, norm=norm, dropout=0.0)


def test_the_model_is_transform_then_propagation_then_head(block_graph: Graph) -> None:
    transform, propagation, head = mlp(3, 5), ExactPropagation(0.1, 4), Linear(5, 3)
    model = Decoupled(transform, propagation, head)
    batch = Batch.full(block_graph, 4)
    assert isinstance(block_graph.x, Tensor)
    expected = head(propagation(transform(block_graph.x), batch))
    torch.testing.assert_close(model(batch), expected, rtol=0, atol=0)
    assert model(batch).shape == (60, 3)
    assert model.embed(block_graph).shape == (60, 5)
    torch.testing.assert_close(model.infer(block_graph), head(model.embed(block_graph)), rtol=0, atol=0)


def test_without_a_head_the_embeddings_are_the_propagated_hidden_layer(block_graph: Graph) -> None:
    model = Decoupled(mlp(3, 3), ExactPropagation(0.1, 4))
    embedding = model.embed(block_graph)
    assert embedding.shape == (60, 8)
    # steps and the last layer are linear, and its bias starts at zero
    torch.testing.assert_close(model.transform.linears[-1](embedding), model.infer(block_graph))
    shallow = Decoupled(MLP(3, 8, 3, mlp_layers=1), ExactPropagation(0.1, 4))
    with pytest.raises(ConfigError, match="`mlp_layers` is 1, so there is no hidden layer to return; train with"):
        shallow.embed(block_graph)


def test_training_and_inference_agree_where_propagation_is_exact(block_graph: Graph) -> None:
    model = Decoupled(mlp(3, 3), ExactPropagation(0.1, 4))
    torch.testing.assert_close(model(Batch.full(block_graph, 4)), model.infer(block_graph), rtol=0, atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 60])
def test_inference_in_blocks_equals_inference_at_once(
    monkeypatch: pytest.MonkeyPatch,
    block_graph: Graph,
    make_sparse: Callable[[Graph], Graph],
    rows: int,
    sparse: bool,
) -> None:
    graph = make_sparse(block_graph) if sparse else block_graph
    model = Decoupled(mlp(3, 5, norm="batch"), ExactPropagation(0.1, 4), Linear(5, 3)).eval()
    whole = model.infer(graph)
    seen: list[int] = []
    model.transform.register_forward_hook(lambda _module, inputs, _out: seen.append(len(inputs[0])))
    monkeypatch.setattr(inference, "INFERENCE_ROWS", rows)
    torch.testing.assert_close(model.infer(graph), whole, rtol=0, atol=1e-6)
    assert max(seen) == rows
    assert sum(seen) == 60


@pytest.mark.parametrize("eval_layers", [None, 3])
def test_inference_touches_no_history(block_graph: Graph, eval_layers: int | None) -> None:
    lazy = LazyPropagation(0.1, Untouchable(), Untouchable(), eval_layers=eval_layers)
    model = Decoupled(mlp(3, 3), lazy)
    assert model.infer(block_graph).shape == (60, 3)
    assert not model.infer(block_graph).requires_grad
    with pytest.raises(AssertionError, match="a history was read"):
        model(Batch.full(block_graph, 2))
    assert model.eval()(Batch.full(block_graph, 2)).shape == (60, 3)


def test_inference_applies_no_dropout_and_restores_the_mode(block_graph: Graph) -> None:
    model = LazyGNN(3, 16, 3, num_nodes=60, dropout=0.9)
    for mode in (True, False):
        model.train(mode)
        assert torch.equal(model.infer(block_graph), model.infer(block_graph))
        assert model.training is model.transform.training is mode


@pytest.mark.parametrize("head", [None, Linear(5, 3)])
def test_dropout_acts_neither_on_what_is_propagated_nor_on_the_outputs(block_graph: Graph, head: Linear | None) -> None:
    torch.manual_seed(0)
    transform, propagation = MLP(3, 8, 5, mlp_layers=2, dropout=0.9), ExactPropagation(0.1, 4)
    model = Decoupled(transform, propagation, head)
    transformed: list[Tensor] = []
    transform.linears[-1].register_forward_hook(lambda _module, _inputs, out: transformed.append(out.clone()))
    batch = Batch.full(block_graph, 4)
    out = model(batch)
    propagated = propagation(transformed[0], batch)
    assert torch.equal(out, propagated if head is None else head(propagated))


def test_lazy_inference_is_the_fixed_point(block_graph: Graph) -> None:
    model = LazyGNN(3, 8, 3, num_nodes=60, alpha=0.2, dropout=0.0)
    out = model.infer(block_graph).double()
    assert isinstance(block_graph.x, Tensor)
    x_in = model.transform(block_graph.x).detach().double()
    identity = torch.eye(60, dtype=torch.float64)
    expected = 0.2 * torch.linalg.solve(identity - 0.8 * block_graph.adj.to_dense().double(), x_in)
    assert float((out - expected).norm()) <= 1.1e-4 * float(x_in.norm())


def test_layers_cover_every_parameter_once_and_end_with_the_head() -> None:
    model = Decoupled(mlp(3, 5, norm="layer"), NoPropagation(), Linear(5, 3))
    groups = model.layer_parameters()
    assert sorted(id(p) for group in groups for p in group) == sorted(id(p) for p in model.parameters())
    assert model.head is not None
    assert [id(p) for p in groups[-1]] == [id(p) for p in model.head.parameters()]


def test_moving_a_model_does_not_move_its_history() -> None:
    model = LazyGNN(3, 8, 3, num_nodes=60, gradient_start=Mix(0.5))
    assert isinstance(model.propagation, LazyPropagation)
    names = set(model.state_dict())
    assert names == {f"transform.linears.{layer}.{part}" for layer in (0, 1) for part in ("weight", "bias")}
    model.to(torch.float64)
    assert isinstance(model.propagation.features, StoredHistory)
    assert isinstance(model.propagation.gradients, StoredHistory)
    assert model.propagation.features.values.read(torch.arange(2)).dtype == torch.float32


def test_the_ready_model_fits_its_response_as_the_method_does(block_graph: Graph) -> None:
    model = LazyGNN(3, 8, 3, num_nodes=60)
    assert model.propagation.response is None
    assert model.fit_response(block_graph, 2, label_step=True) is model
    made = build(resolve("lazygnn", "block", {"alpha": 0.1}), block_graph).model
    assert isinstance(made, Decoupled)
    assert isinstance(made.propagation, LazyPropagation)
    expected = fit_response(block_graph.adj, 0.1, 2, further=1, beta=0.1)
    assert model.propagation.response == made.propagation.response == expected


@pytest.mark.parametrize("num_nodes", [59, 61])
def test_a_history_for_more_or_fewer_nodes_than_the_graph_has_is_refused(block_graph: Graph, num_nodes: int) -> None:
    model = LazyGNN(3, 8, 3, num_nodes=num_nodes)
    message = f"`num_nodes` is {num_nodes}, but the graph has 60 nodes; build the model with `num_nodes=60`"
    with pytest.raises(ConfigError, match=message):
        model(Batch.full(block_graph, 2))
    # inference reads no history, so the graph may have any size
    assert model.infer(block_graph).shape == model.eval()(Batch.full(block_graph, 2)).shape == (60, 3)


def test_parts_of_a_graph_are_smaller_than_the_history(block_graph: Graph) -> None:
    model = LazyGNN(3, 8, 3, num_nodes=60, gradient_start=Mix(0.5))
    for batch in ClusterLoader(block_graph, torch.tensor([0, 20, 60]), 2):
        model(batch).sum().backward()
    assert isinstance(model.propagation, LazyPropagation)
    assert isinstance(model.propagation.features, StoredHistory)
    assert bool((model.propagation.features.pushed >= 0).all())


def test_lazygnn_learns_in_a_plain_loop(block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = LazyGNN(3, 16, 3, num_nodes=block_graph.num_nodes)
    batch = Batch.full(block_graph, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (batch.weight * block_graph.task.loss(model(batch), batch.y)).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    assert losses[-1] < 0.5 * losses[0]
    scores = evaluate(model, block_graph)
    # the features without the graph score lower
    assert isinstance(block_graph.x, Tensor)
    alone = float((block_graph.x.argmax(dim=1) == block_graph.y).float().mean())
    assert scores["test"] > 0.9 > alone


def test_appnp_equals_that_of_torch_geometric(block_graph: Graph) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    graph = block_graph.to(torch.float64)
    torch.manual_seed(0)
    x = torch.randn(60, 4, dtype=torch.float64)
    grad = torch.randn(60, 4, dtype=torch.float64)
    row, col = graph.adj.row_index(), graph.adj.col.long()
    keep = row != col
    theirs_in, ours_in = x.clone().requires_grad_(), x.clone().requires_grad_()
    theirs = nn.APPNP(K=7, alpha=0.15)(theirs_in, torch.stack((row[keep], col[keep])))
    ours = ExactPropagation(0.15, 7)(ours_in, Batch.full(graph, 7))
    theirs.backward(grad)
    ours.backward(grad)
    assert ours_in.grad is not None
    assert theirs_in.grad is not None
    # our matrix was rounded to float32
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    torch.testing.assert_close(ours_in.grad, theirs_in.grad, rtol=0, atol=1e-6)
    # and is not merely close to the input
    assert float((ours - x).detach().abs().max()) > 0.5


def test_sparse_features_give_the_same_model(block_graph: Graph, make_sparse: Callable[[Graph], Graph]) -> None:
    model = Decoupled(mlp(3, 3), ExactPropagation(0.1, 4))
    sparse = make_sparse(block_graph)
    torch.testing.assert_close(model.infer(sparse), model.infer(block_graph), rtol=0, atol=1e-6)
    assert np.isfinite(model(Batch.full(sparse, 4)).detach().numpy()).all()


def test_what_is_propagated_is_not_dropped(block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = Decoupled(MLP(3, 8, 3, mlp_layers=2, dropout=0.5), NoPropagation()).train()
    weight, bias = model.layer_parameters()[-1]
    # an output of ones, whatever is dropped before the last layer
    torch.nn.init.zeros_(weight)
    torch.nn.init.ones_(bias)
    assert torch.equal(model(Batch.full(block_graph, 0)), torch.ones(60, 3))
