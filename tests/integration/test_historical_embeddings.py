"""Models with historical embeddings (GNNAutoScale) against the whole graph, in float64, and their training."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn import inference
from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import History, StoredHistory, named_histories
from lazygnn.loader import ClusterLoader
from lazygnn.methods import Built, build, resolve
from lazygnn.model import Model
from lazygnn.models import GCN, GCNII, MLP, Decoupled
from lazygnn.ops import Csr
from lazygnn.propagation import HistoricalPropagation, Mix
from lazygnn.training.trainer import EpochReport, Trainer
from tests.helpers import open_float64, random_rows

N, L = 60, 3
PTR = torch.tensor([0, 10, 25, 26, 45, 60])
FULL, GAS = ("gcn", "gcnii"), ("gcn-gas", "gcnii-gas", "appnp-gas")


def histories(channels: int) -> list[History]:
    return [open_float64(N, channels, Mix(1.0)) for _ in range(L - 1)]


def gcn() -> Model:
    return GCN(3, 8, 4, num_layers=L, norm="layer", dropout=0.0, histories=histories(8))


def gcnii() -> Model:
    return GCNII(3, 8, 4, num_layers=L, alpha=0.2, dropout=0.0, histories=histories(8))


def appnp() -> Model:
    transform = MLP(3, 8, 4, mlp_layers=2, dropout=0.0)
    return Decoupled(transform, HistoricalPropagation(0.2, L, histories(4)))


Maker = Callable[[], Model]
every_model = pytest.mark.parametrize("make", [gcn, gcnii, appnp])


def seeded(make: Maker, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return make().double()


@pytest.fixture
def graph(block_graph: Graph) -> Graph:
    return block_graph.to(torch.float64)


def parts(graph: Graph, **options: Any) -> ClusterLoader:
    return ClusterLoader(graph, PTR, L, halo="features", **options)


def copy_histories(source: Model, target: Model) -> None:
    for name, history in named_histories(source).items():
        named_histories(target)[name].load_state_dict(history.state_dict())


@every_model
@pytest.mark.parametrize("parts_per_batch", [1, 2])
def test_fresh_histories_make_a_batch_exact_on_its_targets(graph: Graph, make: Maker, parts_per_batch: int) -> None:
    model = seeded(make)
    # a pass over the whole graph stores the exact output of every layer
    expected = model(Batch.full(graph, L))
    for batch in parts(graph, parts_per_batch=parts_per_batch):
        assert len(batch.nodes) > batch.num_targets
        torch.testing.assert_close(model(batch), expected[batch.targets], rtol=0, atol=1e-12)


@every_model
def test_stale_histories_do_not_make_a_batch_exact(graph: Graph, make: Maker) -> None:
    model, other = seeded(make), seeded(make, seed=1)
    other(Batch.full(graph, L))
    expected = model(Batch.full(graph, L))
    copy_histories(other, model)
    batch = next(iter(parts(graph)))
    assert float((model(batch) - expected[batch.targets]).detach().abs().max()) > 1e-3


@every_model
def test_passes_over_all_parts_with_frozen_weights_converge_to_the_whole_graph(graph: Graph, make: Maker) -> None:
    model, loader = seeded(make), parts(graph)
    for _ in range(L):
        for batch in loader.sweep():
            model.fill(batch)
    outputs = torch.cat([model(batch) for batch in loader.sweep()])
    torch.testing.assert_close(outputs, model.infer(graph), rtol=0, atol=1e-12)


@every_model
def test_a_batch_stores_its_targets_only(graph: Graph, make: Maker) -> None:
    model = seeded(make)
    model(Batch.full(graph, L))
    kept = named_histories(model)
    assert len(kept) == L - 1
    before = {name: history.values.read(torch.arange(N)) for name, history in kept.items()}
    for parameter in model.parameters():
        parameter.data *= 1.5
    batch = next(iter(parts(graph)))
    model(batch)
    others = torch.ones(N, dtype=torch.bool)
    others[batch.targets] = False
    for name, history in kept.items():
        after = history.values.read(torch.arange(N))
        assert torch.equal(after[others], before[name][others])
        assert not torch.equal(after[batch.targets], before[name][batch.targets])


def test_outputs_and_gradients_are_those_of_a_constant_halo(graph: Graph) -> None:
    torch.manual_seed(0)
    history = open_float64(N, 8, Mix(1.0))
    stored = random_rows(N, 8, 1)
    history.push(torch.arange(N), stored, stored)
    model = GCN(3, 8, 4, num_layers=2, dropout=0.0, histories=[history]).double()
    batch = next(iter(ClusterLoader(graph, PTR, 2, halo="features")))
    out = model(batch)
    (w1, b1), (w2, b2) = ([p.detach().clone().requires_grad_() for p in group] for group in model.layer_parameters())
    assert isinstance(batch.x, Tensor)
    adj, halo = batch.adjs[0].to_dense(), batch.nodes[batch.num_targets :]
    hidden = F.relu(adj @ (batch.x @ w1) + b1)
    expected = adj @ torch.cat((hidden, stored[halo])) @ w2 + b2
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    grad = random_rows(batch.num_targets, 4, 2)
    out.backward(grad)
    expected.backward(grad)
    for p, q in zip(model.parameters(), [w1, b1, w2, b2], strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=0, atol=1e-12)


def test_a_halo_without_a_memory_is_refused(graph: Graph) -> None:
    batch = next(iter(parts(graph)))
    with pytest.raises(ValueError, match=r"layer 1 returned \d+ rows, the next one needs \d+: a halo needs histories"):
        GCN(3, 8, 4, num_layers=L).double()(batch)
    with pytest.raises(ValueError, match=r"evaluate with `model.infer\(graph\)` or `Batch.full`"):
        seeded(gcn).eval()(batch)
    with pytest.raises(ValueError, match="3 layers need 2 histories or none, got 1"):
        GCN(3, 8, 4, num_layers=L, histories=histories(8)[:1])


def make_built(graph: Graph, method: str, **values: Any) -> Built:
    torch.manual_seed(0)
    common = {"hidden_channels": 8, "num_layers": L, "norm": "batch"}
    cut = {"num_parts": 5, "parts_per_batch": 2, "partition": "random"} if method in GAS else {}
    return build(resolve(method, "block", common | cut | values), graph)


def sparse(graph: Graph) -> Graph:
    assert isinstance(graph.x, Tensor)
    row, col = graph.x.nonzero(as_tuple=True)
    features = Csr.from_sorted(row, col, graph.x[row, col], (N, 3))
    return Graph(features, graph.y, graph.adj, graph.degree, graph.task, graph.masks)


@pytest.mark.parametrize("rows", [7, 60])
@pytest.mark.parametrize("method", [*FULL, *GAS])
def test_inference_is_evaluation_of_the_full_batch(
    monkeypatch: pytest.MonkeyPatch, block_graph: Graph, method: str, rows: int
) -> None:
    built = make_built(block_graph, method, dropout=0.9, input_dropout=0.9)
    model, graph = built.model.double(), sparse(built.graph.to(torch.float64))
    monkeypatch.setattr(inference, "INFERENCE_ROWS", rows)
    # running statistics other than the initial ones
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer += 0.3
    for mode in (True, False):
        model.train(mode)
        found = model.infer(graph)
        assert model.training is mode
        assert not found.requires_grad
    torch.testing.assert_close(found, model.eval()(Batch.full(graph, L)), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("method", "channels"), [("gcn-gas", 8), ("gcnii-gas", 8), ("appnp-gas", 3)])
def test_there_is_one_history_for_each_layer_but_the_last(block_graph: Graph, method: str, channels: int) -> None:
    kept = named_histories(make_built(block_graph, method, num_layers=4).model)
    assert len(kept) == 3
    for history in kept.values():
        assert isinstance(history, StoredHistory)
        assert history.warm == Mix(1.0)
        assert history.num_bytes == N * channels * 4
    assert not named_histories(make_built(block_graph, method, num_layers=1).model)
    # the whole graph has no halo, so no history is needed
    assert not named_histories(make_built(block_graph, method, num_parts=1, parts_per_batch=1, partition="auto").model)


@pytest.mark.parametrize("method", [*FULL, *GAS])
def test_training_learns_and_resumes_bit_for_bit(block_graph: Graph, method: str) -> None:
    # 60 updates for each, since the running statistics of batch norm follow slowly
    options = resolve(method, "block", {"epochs": 20 if method in GAS else 60, "lr": 0.02}).trainer

    def trainer() -> Trainer:
        built = make_built(block_graph, method, dropout=0.2, num_layers=2)
        return Trainer(built.model, built.loader, built.graph, options)

    straight, reports = trainer(), list[EpochReport]()
    straight.on_epoch = reports.append
    saved: list[tuple[dict[str, Tensor], dict[str, Any]]] = []

    def save(running: Trainer) -> None:
        # in the middle of an epoch of three batches
        if running.num_batches == 8:
            tensors, state = running.checkpoint()
            saved.append(({name: value.clone() for name, value in tensors.items()}, state))

    straight.on_batch = save
    straight.run()
    assert reports[-1].loss < 0.6 * reports[0].loss
    assert reports[-1].scores is not None
    assert reports[-1].scores["val"] > 0.8
    resumed = trainer()
    resumed.restore(*saved[0])
    resumed.run()
    expected, found = straight.checkpoint()[0], resumed.checkpoint()[0]
    assert expected.keys() == found.keys()
    assert [name for name, value in expected.items() if not torch.equal(value, found[name])] == []


@pytest.mark.parametrize("kind", [GCN, GCNII])
def test_histories_hold_what_a_layer_gave_before_dropout(graph: Graph, kind: type[GCN | GCNII]) -> None:
    torch.manual_seed(0)
    kept = histories(8)
    model = kind(3, 8, 4, num_layers=L, dropout=0.5, histories=kept).double()
    # positive weights and features give positive outputs, so that a zero was dropped
    for parameter in model.parameters():
        parameter.data.abs_().add_(0.1)
    assert isinstance(graph.x, Tensor)
    positive = Graph(graph.x.abs() + 0.1, graph.y, graph.adj, graph.degree, graph.task, graph.masks)
    for batch in (Batch.full(positive, L), next(iter(parts(positive)))):
        model(batch)
        for history in named_histories(model).values():
            assert bool((history.values.read(batch.targets) > 0).all())
