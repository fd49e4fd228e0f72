import math

import pytest
import torch
from torch import Tensor

from lazygnn.batch import ControlBatch
from lazygnn.graph import Graph
from lazygnn.loader import ControlLoader
from lazygnn.loader.control import sample_neighborhood
from lazygnn.ops import spmm


@pytest.mark.parametrize("count", [1, 3, 100, -1])
def test_a_row_has_the_node_itself_and_some_neighbors(block_graph: Graph, count: int) -> None:
    graph = block_graph.to(torch.float64)
    nodes, exact = torch.tensor([7, 3, 59]), graph.adj.to_dense()
    mean, noise = sample_neighborhood(graph.adj, nodes, count, torch.Generator().manual_seed(0))
    found, root = mean.to_dense(), noise.to_dense()
    for row, node in enumerate(nodes.tolist()):
        others = int((exact[node] != 0).sum()) - 1
        drawn = [other for other in found[row].nonzero()[:, 0].tolist() if other != node]
        assert len(drawn) == (others if count == -1 else min(count, others))
        scale = others / len(drawn)
        torch.testing.assert_close(found[row, drawn], scale * exact[node, drawn])
        torch.testing.assert_close(root[row, drawn], math.sqrt(scale) * exact[node, drawn])
        # the node itself is never left out, so it has the weight of the matrix
        assert found[row, node] == root[row, node] == exact[node, node]
    assert torch.equal(mean.col, noise.col)


@pytest.mark.parametrize("count", [1, 3])
def test_sums_have_the_right_mean_and_sums_of_noise_the_right_variance(block_graph: Graph, count: int) -> None:
    """Means over 2,000 draws for each of 60 rows: within 5 standard errors."""
    graph, draws = block_graph.to(torch.float64), 2000
    mean, noise = sample_neighborhood(
        graph.adj, torch.arange(60).repeat(draws), count, torch.Generator().manual_seed(0)
    )
    assert isinstance(graph.x, Tensor)
    sums = spmm(mean, graph.x).view(draws, 60, 3)
    row = noise.row_index()
    variance = torch.zeros(draws * 60, dtype=torch.float64).index_add_(0, row, noise.value.square()).view(draws, 60)
    for samples, exact in ((sums, spmm(graph.adj, graph.x)), (variance, graph.adj.to_dense().square().sum(dim=1))):
        error = samples.std(dim=0) / math.sqrt(draws)
        assert bool(((samples.mean(dim=0) - exact).abs() <= 5 * error + 1e-12).all())
        assert bool((error > 0).any())


def test_matrices_fit_nested_sets_of_nodes_and_all_neighbors(block_graph: Graph) -> None:
    dense = block_graph.adj.to_dense()
    for batch in ControlLoader(block_graph, 2, num_neighbors=2, batch_size=3, seed=3):
        assert isinstance(batch, ControlBatch)
        rows = [adj.num_rows for adj in batch.adjs]
        assert rows[-1] == batch.num_targets
        assert rows == sorted(rows, reverse=True)
        computed = batch.adjs[0].num_cols
        assert [adj.num_cols for adj in batch.adjs] == [computed, rows[0]]
        assert [adj.shape for adj in batch.noise] == [adj.shape for adj in batch.adjs]
        assert len(batch.nodes) == len(batch.nodes.unique()) >= computed
        # all entries of the rows of the first layer
        assert torch.equal(batch.complete.to_dense(), dense[batch.nodes[: rows[0]]][:, batch.nodes])
        assert int((batch.complete.to_dense() != 0).sum()) == int((dense[batch.nodes[: rows[0]]] != 0).sum())
        # features of the nodes that are computed, not of those that are read
        assert isinstance(block_graph.x, Tensor)
        assert isinstance(batch.x, Tensor)
        assert torch.equal(batch.x, block_graph.x[batch.nodes[:computed]])


@pytest.mark.parametrize(
    ("num_layers", "num_neighbors", "message"),
    [(0, 2, "`num_layers` must be at least 1, got 0"), (1, 0, "`num_neighbors` must be at least 1, got 0")],
)
def test_nothing_to_sample_is_refused(block_graph: Graph, num_layers: int, num_neighbors: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ControlLoader(block_graph, num_layers, num_neighbors=num_neighbors)
