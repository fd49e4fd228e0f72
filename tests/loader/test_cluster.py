"""Compares batches cut out of a graph with dense matrices."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader.cluster import ClusterLoader, Halo
from lazygnn.ops import Csr

N = 60
PTR = torch.tensor([0, 10, 25, 26, 45, 60])


def make_graph(sparse: bool = False) -> Graph:
    rng = np.random.default_rng(0)
    edges = rng.integers(0, N, (2, 120))
    # node 25 is a part of its own without neighbors
    edges = edges[:, (edges != 25).all(axis=0)]
    x: np.ndarray | Csr = rng.normal(size=(N, 4))
    if sparse:
        x = Csr.from_arrays(np.arange(0, 2 * N + 1, 2), rng.integers(0, 7, 2 * N), np.ones(2 * N), 7)
    graph = Graph.from_edges(edges, x, rng.integers(0, 3, N), train_mask=np.arange(N) % 3 == 0)
    return graph if sparse else graph.to(torch.float64)


def within(adj: Tensor, start: Tensor, hops: int) -> set[int]:
    reached = torch.zeros(N, dtype=torch.bool)
    reached[start] = True
    for _ in range(hops):
        reached |= (adj[reached] != 0).any(dim=0)
    return set(reached.nonzero()[:, 0].tolist())


@pytest.mark.parametrize("parts_per_batch", [1, 2, 5])
@pytest.mark.parametrize("halo", ["frozen", "paper", "features", "induced", "none"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_batches_are_the_submatrices_they_should_be(parts_per_batch: int, halo: Halo, num_layers: int) -> None:
    graph = make_graph()
    dense = graph.adj.to_dense()
    loader = ClusterLoader(graph, PTR, num_layers, parts_per_batch=parts_per_batch, halo=halo)
    for batch in loader:
        hops = {"frozen": 1, "paper": num_layers, "features": 1, "induced": 1, "none": 0}[halo]
        assert set(batch.nodes.tolist()) == within(dense, batch.targets, hops)
        assert len(set(batch.nodes.tolist())) == len(batch.nodes)
        assert len(batch.adjs) == num_layers
        for layer, adj in enumerate(batch.adjs):
            further = {"paper": num_layers - 1 - layer, "induced": 1}.get(halo, 0)
            reach = within(dense, batch.targets, further)
            rows = batch.nodes[: adj.num_rows]
            assert set(rows.tolist()) == reach
            torch.testing.assert_close(adj.to_dense(), dense[rows][:, batch.nodes], rtol=0, atol=0)
        fresh = batch.nodes if halo in ("paper", "features", "induced") else batch.targets
        assert torch.equal(torch.as_tensor(batch.x), torch.as_tensor(graph.x)[fresh])
        assert torch.equal(batch.y, graph.y[batch.targets])
        assert (batch.ring is not None) == (halo == "induced")


@pytest.mark.parametrize("parts_per_batch", [1, 2, 5])
def test_an_induced_halo_has_labels_and_the_share_of_its_neighbors_in_the_batch(parts_per_batch: int) -> None:
    graph = make_graph()
    linked = graph.adj.to_dense() != 0
    loader = ClusterLoader(graph, PTR, 2, parts_per_batch=parts_per_batch, halo="induced")
    for batch in loader:
        assert batch.ring is not None
        halo = batch.nodes[batch.num_targets :]
        assert torch.equal(batch.ring.y, graph.y[halo])
        weight = graph.masks["train"][halo] * (len(loader) / graph.num_train)
        torch.testing.assert_close(batch.ring.weight, weight)
        coverage = linked[halo][:, batch.nodes].sum(dim=1) / linked[halo].sum(dim=1)
        torch.testing.assert_close(batch.ring.coverage, coverage.double())


def test_an_epoch_visits_every_node_once_in_another_order_each_time() -> None:
    loader = ClusterLoader(make_graph(), PTR, 2, seed=3)
    epochs = [[int(batch.nodes[0]) for batch in loader] for _ in range(6)]
    assert all(sorted(epoch) == PTR[:-1].tolist() for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1
    again = ClusterLoader(make_graph(), PTR, 2, seed=3)
    assert [[int(batch.nodes[0]) for batch in again] for _ in range(6)] == epochs


def test_loss_weights_are_constants_of_the_run() -> None:
    graph = make_graph()
    loader = ClusterLoader(graph, PTR, 1, parts_per_batch=2)
    train = graph.masks["train"]
    for batch in loader:
        expected = train[batch.targets] * (len(loader) / int(train.sum()))
        torch.testing.assert_close(batch.weight, expected)
    # over an epoch the batch losses average to the mean over all training nodes
    assert sum(float(batch.weight.sum()) for batch in loader) / len(loader) == pytest.approx(1.0)


def test_one_part_is_the_full_batch_bit_for_bit() -> None:
    graph = make_graph()
    (batch,) = ClusterLoader(graph, torch.tensor([0, N]), 3)
    full = Batch.full(graph, 3)
    for name in ("x", "y", "weight", "nodes"):
        assert torch.equal(getattr(batch, name), getattr(full, name)), name
    for one, other in zip(batch.adjs, full.adjs, strict=True):
        assert torch.equal(one.rowptr, other.rowptr)
        assert torch.equal(one.col, other.col)
        assert torch.equal(one.value, other.value)
        assert one.col.dtype == other.col.dtype


def test_single_parts_are_cut_once_and_kept() -> None:
    loader = ClusterLoader(make_graph(), PTR, 2)
    first = {int(batch.nodes[0]): batch for batch in loader}
    assert all(batch is first[int(batch.nodes[0])] and batch.lasting for batch in loader)
    fresh = ClusterLoader(make_graph(), PTR, 2, keep=False)
    one = {int(batch.nodes[0]): batch for batch in fresh}
    assert all(batch is not one[int(batch.nodes[0])] and not batch.lasting for batch in fresh)


@pytest.mark.parametrize("sparse", [False, True])
def test_edges_of_kept_cuts_are_placed_once(sparse: bool) -> None:
    graph = make_graph(sparse)
    loader, plain = ClusterLoader(graph, PTR, 2, edges="meta"), ClusterLoader(graph, PTR, 2)
    swept = list(loader.sweep())
    for batch, expected in zip(swept, plain.sweep(), strict=True):
        assert batch.x.device.type == "cpu"
        own, expected_own = (x if isinstance(x, Tensor) else x.to_dense() for x in (batch.x, expected.x))
        assert torch.equal(own, expected_own)
        assert batch.num_targets == expected.num_targets
        rest = [batch.y, batch.weight, batch.nodes, *(adj.value for adj in batch.adjs)]
        assert {part.device.type for part in rest} == {"meta"}
        assert batch.adjs[0] is batch.adjs[1]
        assert [adj.shape for adj in batch.adjs] == [adj.shape for adj in expected.adjs]
    assert {id(batch) for batch in loader} == {id(batch) for batch in swept}
    assert loader.upcoming() is None


def test_cuts_that_are_not_kept_stay_where_they_were_made() -> None:
    graph = make_graph()
    for loader in (
        ClusterLoader(graph, PTR, 1, keep=False, edges="meta"),
        ClusterLoader(graph, PTR, 1, parts_per_batch=2, edges="meta"),
    ):
        assert all(tensor.device.type == "cpu" for batch in loader for tensor in batch.tensors())


def test_the_thread_works_on_the_stream_of_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = threading.local()

    @contextmanager
    def enter(stream: str) -> Iterator[None]:
        entered.stream = stream
        yield
        entered.stream = None

    loader = ClusterLoader(make_graph(), PTR, 1)
    monkeypatch.setattr(loader, "_cut", lambda parts: (parts, entered.stream, threading.current_thread().name))
    # such as the stream that a user has chosen for training
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"{threading.current_thread().name}, {device}")
    monkeypatch.setattr(torch.cuda, "stream", enter)
    monkeypatch.setattr(Graph, "device", torch.device("cuda"))
    found: Any = loader._submit([2]).result()
    parts, stream, thread = found
    assert parts == [2]
    assert stream == f"{threading.current_thread().name}, cuda"
    assert thread != threading.current_thread().name


@pytest.mark.parametrize("halo", ["frozen", "paper"])
def test_features_come_in_the_type_asked_for(halo: Halo) -> None:
    graph = make_graph()
    assert isinstance(graph.x, Tensor)
    for batch in ClusterLoader(graph, PTR, 1, halo=halo, dtype=torch.bfloat16):
        rows = batch.nodes if halo == "paper" else batch.targets
        assert torch.equal(torch.as_tensor(batch.x), graph.x[rows].to(torch.bfloat16))
        assert {adj.value.dtype for adj in batch.adjs} == {torch.float64}
    sparse = next(iter(ClusterLoader(make_graph(sparse=True), PTR, 1, dtype=torch.bfloat16))).x
    assert isinstance(sparse, Csr)
    assert sparse.value.dtype == torch.float32


def test_sparse_features_are_selected_row_by_row() -> None:
    graph = make_graph(sparse=True)
    assert isinstance(graph.x, Csr)
    for batch in ClusterLoader(graph, PTR, 1, parts_per_batch=2):
        assert isinstance(batch.x, Csr)
        torch.testing.assert_close(batch.x.to_dense(), graph.x.to_dense()[batch.targets])


def test_bad_values_are_named() -> None:
    graph = make_graph()
    with pytest.raises(ValueError, match=r"`parts_per_batch` must be in \[1, 5\], got 6"):
        ClusterLoader(graph, PTR, 1, parts_per_batch=6)
    with pytest.raises(ValueError, match="`halo` must be one of frozen, paper, features, induced, none, got `wide`"):
        ClusterLoader(graph, PTR, 1, halo="wide")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`ptr` must rise from 0 to 60"):
        ClusterLoader(graph, torch.tensor([0, 30, 30, 60]), 1)
