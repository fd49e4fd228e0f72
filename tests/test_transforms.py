"""Edges between similar nodes, held against dense matrices."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn import transforms
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.ops import Csr
from lazygnn.transforms import link_similar

N = 14


def make_graph(sparse: bool = False) -> Graph:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 6)) * (rng.random((N, 6)) < 0.5)
    # one node without features has nothing in common with any other
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
    # what links nobody changes nothing but by rounding
    alone = link_similar(replace(graph, x=torch.zeros(N, 2)), num_neighbors, weight)
    torch.testing.assert_close(alone.adj.to_dense(), graph.adj.to_dense())
    torch.testing.assert_close(alone.degree, graph.degree)


@pytest.mark.parametrize("num_neighbors", [0, N])
def test_there_must_be_so_many_others(num_neighbors: int) -> None:
    with pytest.raises(
        ConfigError, match=f"`feature_neighbors` is {num_neighbors}, the graph has {N} nodes; give fewer"
    ):
        link_similar(make_graph(), num_neighbors, 0.1)
