import math

import pytest
import torch
from torch import Tensor

from lazygnn.graph import Graph
from lazygnn.loader import NeighborLoader
from lazygnn.loader.neighbor import sample_neighbors
from lazygnn.ops import spmm


def neighbors_of(graph: Graph) -> list[set[int]]:
    dense = graph.adj.to_dense() > 0
    return [set(row.nonzero()[:, 0].tolist()) - {node} for node, row in enumerate(dense)]


@pytest.mark.parametrize("count", [1, 3, 5, 100])
def test_draws_without_replacement_up_to_the_number(block_graph: Graph, count: int) -> None:
    drawn = sample_neighbors(block_graph.adj, torch.arange(60), count, torch.Generator().manual_seed(0))
    for node, known in enumerate(neighbors_of(block_graph)):
        entries = slice(int(drawn.rowptr[node]), int(drawn.rowptr[node + 1]))
        found = drawn.col[entries].tolist()
        assert len(found) == len(set(found)) == min(count, len(known))
        assert set(found) <= known
        assert bool((drawn.value[entries] == 1 / max(len(found), 1)).all())


@pytest.mark.parametrize("count", [1, 4])
def test_the_mean_of_what_is_drawn_is_unbiased(block_graph: Graph, count: int) -> None:
    """Mean over 2,000 draws against the whole mean: within 5 standard errors of every entry of 60 x 3."""
    graph, draws = block_graph.to(torch.float64), 2000
    generator = torch.Generator().manual_seed(0)
    assert isinstance(graph.x, Tensor)
    # rows are drawn independently, those of the same node too
    often = sample_neighbors(graph.adj, torch.arange(60).repeat(draws), count, generator)
    samples = spmm(often, graph.x).view(draws, 60, 3)
    exact = spmm(sample_neighbors(graph.adj, torch.arange(60), -1, generator), graph.x)
    error = samples.std(dim=0) / math.sqrt(draws)
    assert bool(((samples.mean(dim=0) - exact).abs() <= 5 * error + 1e-12).all())
    # and it is a sample: where there is something to choose, draws differ
    few = torch.tensor([len(known) for known in neighbors_of(graph)]) <= count
    assert bool((error[~few] > 0).all())
    torch.testing.assert_close(error[few], torch.zeros_like(error[few]), atol=1e-12, rtol=0)


def test_every_pair_of_neighbors_is_drawn_equally_often() -> None:
    """A star with five leaves: of 3,000 pairs drawn each of the ten comes up 300 times, within 5 deviations."""
    edges = torch.tensor([[0] * 5, [1, 2, 3, 4, 5]])
    graph = Graph.from_edges(edges, torch.eye(6), torch.zeros(6, dtype=torch.long), num_classes=2)
    center = torch.zeros(3000, dtype=torch.long)
    drawn = sample_neighbors(graph.adj, center, 2, torch.Generator().manual_seed(0))
    pairs, counts = drawn.col.view(3000, 2).sort(dim=1).values.unique(dim=0, return_counts=True)
    assert len(pairs) == 10
    assert bool(((counts - 300).abs() <= 5 * math.sqrt(3000 * 0.1 * 0.9)).all())


def test_node_sets_are_nested_and_matrices_fit_them(block_graph: Graph) -> None:
    known = neighbors_of(block_graph)
    for batch in NeighborLoader(block_graph, [2, 3, 4], batch_size=7, seed=3):
        rows = [adj.num_rows for adj in batch.adjs]
        assert rows == sorted(rows, reverse=True)
        assert rows[-1] == batch.num_targets
        assert [adj.num_cols for adj in batch.adjs] == [len(batch.nodes), *rows[:-1]]
        assert len(set(batch.nodes.tolist())) == len(batch.nodes)
        assert isinstance(block_graph.x, Tensor)
        assert isinstance(batch.x, Tensor)
        assert torch.equal(batch.x, block_graph.x[batch.nodes])
        for adj, count in zip(batch.adjs, [2, 3, 4], strict=True):
            torch.testing.assert_close(adj.to_dense().sum(dim=1), torch.ones(adj.num_rows))
            assert int(adj.rowptr.diff().max()) <= count
            for row, col in zip(adj.row_index().tolist(), adj.col.tolist(), strict=True):
                assert int(batch.nodes[col]) in known[int(batch.nodes[row])]


def test_targets_are_training_nodes_with_the_weight_of_a_run(block_graph: Graph) -> None:
    loader = NeighborLoader(block_graph, [2], batch_size=7)
    batches = list(loader)
    assert len(batches) == len(loader) == 3
    targets = torch.cat([batch.targets for batch in batches])
    assert torch.equal(targets.sort().values, block_graph.masks["train"].nonzero()[:, 0])
    assert all(torch.equal(batch.weight, torch.full((batch.num_targets,), 3 / 20)) for batch in batches)


def test_a_sample_depends_on_seed_and_epoch(block_graph: Graph) -> None:
    loader = NeighborLoader(block_graph, [2], seed=5)
    (first,), (second,) = loader, loader
    (other,) = NeighborLoader(block_graph, [2], seed=6)
    assert torch.equal(first.targets, second.targets)
    samples = [
        frozenset(zip(b.adjs[0].row_index().tolist(), b.nodes[b.adjs[0].col.long()].tolist(), strict=True))
        for b in (first, second, other)
    ]
    assert len(set(samples)) == 3


@pytest.mark.parametrize("count", [0, -2])
def test_an_impossible_number_of_neighbors_is_refused(block_graph: Graph, count: int) -> None:
    with pytest.raises(ValueError, match=f"must be at least 1, or -1 for all, in every layer, got {count}"):
        NeighborLoader(block_graph, [3, count])
