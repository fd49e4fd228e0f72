"""The subgraphs of GraphSAINT against the probabilities of its samplers, which are known in closed form."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.loader import SaintLoader
from lazygnn.loader.saint import Counts, Sampler
from lazygnn.ops import spmm

SAMPLERS: dict[Sampler, dict[str, Any]] = {
    "node": {"num_samples": 15},
    "edge": {"num_samples": 8},
    "walk": {"num_samples": 5, "walk_length": 2},
}
every_sampler = pytest.mark.parametrize("sampler", list(SAMPLERS))


def load(graph: Graph, sampler: Sampler, **options: Any) -> SaintLoader:
    return SaintLoader(graph, 2, sampler=sampler, **SAMPLERS[sampler], **options)


def neighbors(graph: Graph) -> Tensor:
    """The dense pattern of the edges, without self-loops."""
    return (graph.adj.to_dense() != 0).double().fill_diagonal_(0)


def avoiding(graph: Graph, sampler: Sampler) -> Tensor:
    """Returns the probability that one draw meets neither of two nodes, [N, N]; on the diagonal, not this node."""
    num_nodes, edges = graph.num_nodes, neighbors(graph)
    if sampler == "node":
        q = graph.adj.to_dense().double().square().sum(dim=0)
        q = q / q.sum()
        return 1 - (q[:, None] + q[None, :]).fill_diagonal_(0) - q.diag()
    if sampler == "edge":
        degree = edges.sum(dim=1)
        p = edges * (1 / degree[:, None] + 1 / degree[None, :])
        p = p / p.triu().sum()
        # an edge between the two nodes would be subtracted twice
        touched = p.sum(dim=1)
        return 1 - (touched[:, None] + touched[None, :] - p).fill_diagonal_(0) - touched.diag()
    step, avoid = edges / edges.sum(dim=1, keepdim=True), torch.empty(num_nodes, num_nodes, dtype=torch.float64)
    for first in range(num_nodes):
        kept = torch.ones(num_nodes, num_nodes, dtype=torch.float64)
        kept[:, first] = 0
        kept.fill_diagonal_(0)
        # row `second` of `walks` holds where walks are that met neither `first` nor `second`
        walks = kept / num_nodes
        for _ in range(SAMPLERS["walk"]["walk_length"]):
            walks = walks @ step * kept
        avoid[first] = walks.sum(dim=1)
    return avoid


def inclusion(graph: Graph, sampler: Sampler) -> tuple[Tensor, Tensor]:
    """Returns the probability that a node is in a subgraph, [N], and that both of two nodes are, [N, N]."""
    none = avoiding(graph, sampler) ** SAMPLERS[sampler]["num_samples"]
    single = 1 - none.diag()
    # the probability of both is that of each less that of either
    both = single[:, None] + single[None, :] - (1 - none)
    return single, both


@every_sampler
def test_counts_agree_with_the_probabilities_of_the_sampler(block_graph: Graph, sampler: Sampler) -> None:
    """Of some 1,000 subgraphs, the share with a node, and with an edge, is within 5 standard deviations."""
    loader = load(block_graph, sampler, coverage=200)
    total, nodes, entries = loader.counts
    single, both = inclusion(block_graph, sampler)
    row, col = block_graph.adj.row_index(), block_graph.adj.col.long()
    both = torch.where(row == col, single[row], both[row, col])
    for found, expected in ((nodes, single), (entries, both)):
        error = (found / total - expected).abs()
        assert bool((error <= 5 * (expected * (1 - expected) / total).sqrt()).all())


@every_sampler
def test_over_the_counted_subgraphs_sums_over_neighbors_and_the_loss_are_exact(
    block_graph: Graph, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given that a node is in a subgraph, the mean of its row is its row; the mean of all losses is the mean loss."""
    graph = block_graph.to(torch.float64)
    loader = load(graph, sampler, coverage=60)
    drawn = list(loader.presample())
    assert len(drawn) == loader.counts.num_subgraphs
    assert bool((loader.counts.entries > 0).all())
    rows, loss = torch.zeros(60, 60, dtype=torch.float64), torch.zeros(60, dtype=torch.float64)
    for nodes in drawn:
        monkeypatch.setattr(loader, "sample", lambda _, nodes=nodes: nodes)
        batch = loader.draw(0, torch.Generator())
        rows[nodes[:, None], nodes] += batch.adjs[0].to_dense()
        loss[nodes] += batch.weight
    torch.testing.assert_close(rows / loader.counts.nodes[:, None], graph.adj.to_dense(), rtol=1e-5, atol=1e-7)
    expected = graph.masks["train"] / graph.num_train
    torch.testing.assert_close(loss / len(drawn), expected.double(), rtol=1e-5, atol=1e-7)


def test_with_exact_probabilities_a_sum_over_neighbors_is_unbiased(
    block_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means over some 80 visits of a node against the exact product: within 5 standard errors."""
    graph = block_graph.to(torch.float64)
    single, both = inclusion(graph, "node")
    row, col = graph.adj.row_index(), graph.adj.col.long()
    many = 10**6
    counts = Counts(many, many * single, many * torch.where(row == col, single[row], both[row, col]))
    monkeypatch.setattr(SaintLoader, "counts", counts)
    loader, generator = load(graph, "node"), torch.Generator().manual_seed(7)
    sums, squares, visits = torch.zeros(60, 3), torch.zeros(60, 3), torch.zeros(60, 1)
    for _ in range(400):
        batch = loader.draw(0, generator)
        assert isinstance(batch.x, Tensor)
        found = spmm(batch.adjs[0], batch.x).float()
        sums[batch.nodes] += found
        squares[batch.nodes] += found.square()
        visits[batch.nodes] += 1
    mean = sums / visits
    error = ((squares / visits - mean.square()) / visits).sqrt()
    assert isinstance(graph.x, Tensor)
    assert bool(((mean - spmm(graph.adj, graph.x)).abs() <= 5 * error).all())


@every_sampler
def test_a_subgraph_has_all_edges_between_its_nodes(block_graph: Graph, sampler: Sampler) -> None:
    dense = block_graph.adj.to_dense()
    loader = load(block_graph, sampler, coverage=2)
    for batch in loader:
        assert torch.equal(batch.nodes, batch.nodes.unique())
        assert batch.num_targets == len(batch.nodes)
        assert batch.adjs[0] is batch.adjs[1]
        inside = dense[batch.nodes][:, batch.nodes]
        assert torch.equal(batch.adjs[0].to_dense() != 0, inside != 0)
        # a node is in every subgraph that it is in
        torch.testing.assert_close(batch.adjs[0].to_dense().diag(), inside.diag())
        trained = block_graph.masks["train"][batch.nodes]
        assert torch.equal(batch.weight > 0, trained)


def test_what_was_never_counted_counts_as_seen_once(block_graph: Graph) -> None:
    loader = load(block_graph, "node", coverage=1)
    assert bool((loader.counts.entries == 0).any())
    for batch in loader:
        assert bool(batch.adjs[0].value.isfinite().all())
        assert bool(batch.weight.isfinite().all())
        assert float(batch.weight.max()) <= loader.counts.num_subgraphs / block_graph.num_train


def test_a_walk_stays_at_a_node_without_neighbors() -> None:
    edges, y = torch.tensor([[0], [1]]), torch.tensor([0, 1, 0])
    graph = Graph.from_edges(edges, torch.eye(3), y, train_mask=torch.ones(3).bool())
    loader = SaintLoader(graph, 1, sampler="walk", num_samples=1, walk_length=3, coverage=20)
    found = {tuple(nodes.tolist()) for nodes in loader.presample()}
    assert found == {(0, 1), (2,)}


def test_edges_of_a_graph_without_any_are_refused() -> None:
    empty, y = torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 1, 0])
    graph = Graph.from_edges(empty, torch.eye(3), y, train_mask=torch.ones(3).bool(), name="dust")
    with pytest.raises(ConfigError, match="graph `dust` has no edges to draw; set `sampler=node`"):
        SaintLoader(graph, 1, sampler="edge")
    assert len(list(SaintLoader(graph, 1, sampler="walk", num_samples=1))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampler": "forest"}, "`sampler` must be one of node, edge, walk, got `forest`"),
        ({"num_samples": 0}, "`num_samples` must be at least 1, got 0"),
        ({"walk_length": 0}, "`walk_length` must be at least 1, got 0"),
        ({"coverage": 0}, "`coverage` must be at least 1, got 0"),
    ],
)
def test_impossible_options_are_refused(block_graph: Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SaintLoader(block_graph, 2, **options)
