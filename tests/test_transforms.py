"""Transforms of graphs, compared with dense matrices."""

import logging
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn import transforms
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.ops import Csr
from lazygnn.transforms import link_similar, row_normalize, smooth_features, stack_features

N = 14


def make_graph(sparse: bool = False) -> Graph:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 6)) * (rng.random((N, 6)) < 0.5)
    # a node without features is similar to no other
    x[3] = 0
    edges = rng.integers(0, N, (2, 20))
    edges = np.concatenate((edges, edges[::-1]), axis=1)
    weight = np.tile(rng.uniform(0.5, 2, 20), 2)
    features: np.ndarray | Csr = x
    if sparse:
        row, col = torch.as_tensor(x).nonzero(as_tuple=True)
        features = Csr.from_sorted(row, col, torch.as_tensor(x)[row, col].float(), (N, 6))
    return Graph.from_edges(edges, features, rng.integers(0, 2, N), edge_weight=weight, train_mask=np.ones(N, bool))


def linked_by_hand(graph: Graph, num_neighbors: int, weight: float) -> Tensor:
    x = graph.x.to_dense().double()
    unit = x / x.norm(dim=1, keepdim=True).clamp(min=1e-30)
    cosine = (unit @ unit.T).fill_diagonal_(-1)
    links = torch.zeros(N, N, dtype=torch.float64)
    for node in range(N):
        for other in cosine[node].argsort(descending=True)[:num_neighbors]:
            links[node, other] = weight * cosine[node, other].clamp(min=0)
    scale = graph.degree.double().sqrt()
    given = graph.adj.to_dense().double() * scale[:, None] * scale
    whole = torch.maximum(given, torch.maximum(links, links.T))
    scale = whole.sum(dim=1).rsqrt()
    return whole * scale[:, None] * scale


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(("num_neighbors", "weight"), [(1, 0.3), (3, 5.0), (N - 1, 0.1)])
def test_every_node_is_linked_to_its_nearest(
    num_neighbors: int,
    weight: float,
    sparse: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # blocks of three nodes
    monkeypatch.setattr(transforms, "_BLOCK_BYTES", 3 * 4 * N)
    graph = make_graph(sparse)
    with caplog.at_level(logging.WARNING):
        linked = link_similar(graph, num_neighbors, weight)
    assert not caplog.records
    expected = linked_by_hand(graph, num_neighbors, weight)
    torch.testing.assert_close(linked.adj.to_dense().double(), expected, rtol=1e-5, atol=1e-6)
    assert linked.x is graph.x
    assert linked.adj.col.dtype == graph.adj.col.dtype
    torch.testing.assert_close(linked.adj.to_dense(), linked.adj.to_dense().T)
    # without similar nodes, the graph changes by rounding only
    alone = link_similar(replace(graph, x=torch.zeros(N, 2)), num_neighbors, weight)
    torch.testing.assert_close(alone.adj.to_dense(), graph.adj.to_dense())
    torch.testing.assert_close(alone.degree, graph.degree)


@pytest.mark.parametrize("num_neighbors", [0, N])
def test_more_neighbors_than_other_nodes_are_refused(num_neighbors: int) -> None:
    message = f"`feature_neighbors` must be at least 1 and less than the number of nodes, {N}, got {num_neighbors}"
    with pytest.raises(ConfigError, match=message):
        link_similar(make_graph(), num_neighbors, 0.1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_normalized_and_rows_of_zeros_stay(dtype: torch.dtype) -> None:
    x = torch.tensor([[1.0, -3.0], [0.0, 0.0], [2.0, 2.0]])
    expected = [[0.25, -0.75], [0, 0], [0.5, 0.5]]
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    sparse = Csr.from_arrays(np.array([0, 2, 2, 4]), np.array([0, 1, 0, 1]), np.array([1.0, -3.0, 2.0, 2.0]), 2)
    for features in (x, sparse):
        graph = Graph.from_edges(edges, features).to(dtype)
        normalized = row_normalize(graph)
        assert type(normalized.x) is type(graph.x)
        values = normalized.x.value if isinstance(normalized.x, Csr) else normalized.x
        assert values.dtype == dtype
        assert normalized.x.to_dense().tolist() == expected
        # the given graph is not changed
        assert graph.x.to_dense().tolist() == x.tolist()
        assert normalized.adj is graph.adj


def test_smooth_features_are_powers_of_the_matrix_times_the_features(block_graph: Graph) -> None:
    graph = block_graph.to(torch.float64)
    adj, x = graph.adj.to_dense(), graph.x.to_dense()
    torch.testing.assert_close(smooth_features(graph, 3).x, adj @ adj @ adj @ x)
    torch.testing.assert_close(stack_features(graph, 2).x, torch.cat((x, adj @ x, adj @ adj @ x), dim=1))


@pytest.mark.parametrize("transform", [smooth_features, stack_features])
@pytest.mark.parametrize("block_bytes", [2**28, 2 * 4 * 60, 1], ids=["at once", "two columns", "one column"])
def test_sparse_features_and_blocks_of_columns_give_the_same(
    block_graph: Graph,
    monkeypatch: pytest.MonkeyPatch,
    transform: Callable[[Graph, int], Graph],
    block_bytes: int,
) -> None:
    graph = block_graph.to(torch.float64)
    expected = transform(graph, 3).x
    assert isinstance(graph.x, Tensor)
    row, col = graph.x.nonzero(as_tuple=True)
    sparse = replace(graph, x=Csr.from_sorted(row, col, graph.x[row, col], (60, 3)))
    monkeypatch.setattr(transforms, "_BLOCK_BYTES", block_bytes)
    torch.testing.assert_close(transform(graph, 3).x, expected)
    torch.testing.assert_close(transform(sparse, 3).x, expected)


@pytest.mark.parametrize("transform", [smooth_features, stack_features])
def test_no_hops_leave_the_features_unchanged(block_graph: Graph, transform: Callable[[Graph, int], Graph]) -> None:
    assert torch.equal(transform(block_graph, 0).x.to_dense(), block_graph.x.to_dense())


@pytest.mark.parametrize(
    "transform", [row_normalize, lambda graph: smooth_features(graph, 1), lambda graph: stack_features(graph, 1)]
)
def test_changed_features_are_not_those_of_the_tables(transform: Callable[[Graph], Graph]) -> None:
    graph = Graph.from_tables({"id": [1, 2], "size": [1, 2]}, {"source": [1], "target": [2]})
    assert graph.schema is not None
    assert transform(graph).schema is None
