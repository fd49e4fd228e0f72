"""What FastGCN and LADIES draw: exact matrices given the draw, and the expectation of the draws."""

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.loader import FastGCNLoader, LadiesLoader
from lazygnn.loader.layerwise import LayerLoader
from lazygnn.ops import spmm

TARGETS = torch.tensor([3, 50, 7, 22])


@pytest.fixture
def graph(block_graph: Graph) -> Graph:
    return block_graph.to(torch.float64)


def probability_of(loader: LayerLoader, graph: Graph) -> Tensor:
    """Returns the probability that one draw below the targets is a node, [N]."""
    rows = graph.adj.to_dense()
    squares = (rows if isinstance(loader, FastGCNLoader) else rows[TARGETS]).square().sum(dim=0)
    return squares / squares.sum()


@pytest.mark.parametrize("kind", [FastGCNLoader, LadiesLoader])
def test_sums_over_neighbors_are_unbiased(graph: Graph, kind: type[LayerLoader]) -> None:
    """Column `u` is multiplied by a factor of mean 1: within 5 standard deviations after 400 draws of 10."""
    loader, draws = kind(graph, 1, num_samples=10), 400
    block, generator = graph.adj.select(TARGETS), torch.Generator().manual_seed(0)
    total = torch.zeros(60, dtype=torch.float64)
    for _ in range(draws):
        nodes, factor = loader.choose(block, TARGETS, generator)
        assert len(nodes) <= 10
        total[nodes] += factor
    p = probability_of(loader, graph)
    reached = p > 0
    assert not bool(total[~reached].any())
    deviation = ((1 / p[reached] - 1) / (10 * draws)).sqrt()
    assert bool(((total[reached] / draws - 1).abs() <= 5 * deviation).all())


@pytest.mark.parametrize("kind", [FastGCNLoader, LadiesLoader])
def test_a_matrix_has_the_columns_drawn_times_their_factors(graph: Graph, kind: type[LayerLoader]) -> None:
    loader, dense = kind(graph, 2, num_samples=12), graph.adj.to_dense()
    batch = loader.make(TARGETS, torch.Generator().manual_seed(0))
    generator, rows, expected = torch.Generator().manual_seed(0), TARGETS, []
    for _ in range(2):
        nodes, factor = loader.choose(graph.adj.select(rows), TARGETS, generator)
        expected.append(dense[rows][:, nodes] * factor)
        rows = nodes
    for adj, matrix in zip(batch.adjs, reversed(expected), strict=True):
        torch.testing.assert_close(adj.to_dense(), matrix)
    assert isinstance(graph.x, Tensor)
    assert isinstance(batch.x, Tensor)
    assert torch.equal(batch.x, graph.x[rows])
    assert torch.equal(batch.targets, TARGETS)


def test_many_draws_give_the_exact_layer(graph: Graph) -> None:
    """With 200,000 draws the product is within 1 % of its size."""
    assert isinstance(graph.x, Tensor)
    exact = spmm(graph.adj.select(TARGETS), graph.x)
    for loader in (FastGCNLoader(graph, 1, num_samples=200_000), LadiesLoader(graph, 1, num_samples=200_000)):
        batch = loader.make(TARGETS, torch.Generator().manual_seed(0))
        assert isinstance(batch.x, Tensor)
        assert float((spmm(batch.adjs[0], batch.x) - exact).norm()) <= 0.01 * float(exact.norm())


def test_draws_of_fastgcn_ignore_the_batch_and_those_of_ladies_do_not(graph: Graph) -> None:
    near = set(graph.adj.select(TARGETS).col.tolist())
    assert len(near) < 60
    drawn = {}
    for kind in (FastGCNLoader, LadiesLoader):
        loader, generator = kind(graph, 1, num_samples=30), torch.Generator().manual_seed(0)
        nodes = [loader.choose(graph.adj.select(TARGETS), TARGETS, generator).nodes for _ in range(20)]
        drawn[kind] = set(torch.cat(nodes).tolist())
    assert drawn[LadiesLoader] <= near
    assert not drawn[FastGCNLoader] <= near


def test_a_node_without_a_drawn_neighbor_has_a_row_of_zeros(graph: Graph) -> None:
    batch = FastGCNLoader(graph, 1, num_samples=1).make(torch.arange(60), torch.Generator().manual_seed(0))
    (adj,) = batch.adjs
    empty = adj.rowptr.diff() == 0
    assert bool(empty.any())
    assert isinstance(batch.x, Tensor)
    product = spmm(adj, batch.x)
    assert not bool(product[empty].any())
    assert bool(product.isfinite().all())


@pytest.mark.parametrize("released", [False, True])
def test_nodes_of_degree_zero_have_finite_sums(released: bool) -> None:
    """A self-loop of weight zero stays in the matrix, and its column has no probability."""
    at = np.arange(6)
    edges, weight = np.stack((at, at)), (at >= 4).astype(float)
    graph = Graph.from_edges(edges, np.eye(6), at % 2, edge_weight=weight, train_mask=at < 5)
    loader = LadiesLoader(graph, 2, num_samples=4, released=released)
    for targets in (at[:3], at[2:5]):
        batch = loader.make(torch.from_numpy(targets), torch.Generator().manual_seed(0))
        for adj in batch.adjs:
            assert bool(adj.value.isfinite().all())


def released_bias(graph: Graph, num_samples: int, draws: int = 60) -> float:
    """Returns the distance of the mean product from the exact one, relative to the latter."""
    loader, generator = (
        LadiesLoader(graph, 1, num_samples=num_samples, released=True),
        torch.Generator().manual_seed(0),
    )
    assert isinstance(graph.x, Tensor)
    exact = spmm(graph.adj.select(TARGETS), graph.x)
    found = []
    for _ in range(draws):
        batch = loader.make(TARGETS, generator)
        assert isinstance(batch.x, Tensor)
        found.append(spmm(batch.adjs[0], batch.x))
    return float((torch.stack(found).mean(dim=0) - exact).norm() / exact.norm())


def test_the_bias_of_the_released_form_is_bounded_and_falls_with_the_sample(graph: Graph) -> None:
    few, more, many = (released_bias(graph, count) for count in (2, 8, 24))
    assert 1 > few > more > many
    assert many < 0.15


def test_the_released_form_adds_the_targets_and_keeps_the_sums_of_rows(graph: Graph) -> None:
    loader, generator = LadiesLoader(graph, 2, num_samples=6, released=True), torch.Generator().manual_seed(0)
    block = graph.adj.select(TARGETS)
    nodes, _ = loader.choose(block, TARGETS, generator)
    assert set(TARGETS.tolist()) <= set(nodes.tolist())
    assert len(nodes) == len(nodes.unique()) <= 10
    last = loader.make(TARGETS, generator).adjs[-1]
    torch.testing.assert_close(last.to_dense().sum(dim=1), graph.adj.to_dense()[TARGETS].sum(dim=1))
    # within a row, an entry is divided by the probability of its column
    p = probability_of(loader, graph)
    chosen = loader.make(TARGETS, torch.Generator().manual_seed(1))
    drawn = loader.choose(block, TARGETS, torch.Generator().manual_seed(1)).nodes
    weighted = graph.adj.to_dense()[TARGETS][:, drawn] / p[drawn]
    share = chosen.adjs[-1].to_dense()
    torch.testing.assert_close(share / share.sum(dim=1, keepdim=True), weighted / weighted.sum(dim=1, keepdim=True))


@pytest.mark.parametrize("kind", [FastGCNLoader, LadiesLoader])
def test_no_draws_are_refused(graph: Graph, kind: type[LayerLoader]) -> None:
    with pytest.raises(ValueError, match="`num_samples` must be at least 1, got 0"):
        kind(graph, 1, num_samples=0)
