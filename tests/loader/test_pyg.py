import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader, from_pyg_batch
from lazygnn.models.decoupled import LazyGNN
from lazygnn.propagation import Drift, LazyPropagation
from tests.helpers import open_float64, random_rows


def edges_of(graph: Graph) -> Tensor:
    row, col = graph.adj.row_index(), graph.adj.col.long()
    return torch.stack((col, row))[:, row != col]


def neighbor_form(graph: Graph, seeds: list[int], count: int, seed: int, *, replace: bool = False) -> Any:
    """A mini-batch like those of PyG's `NeighborLoader` for one hop: seeds first, local edges, `n_id`, `batch_size`."""
    generator, edges = torch.Generator().manual_seed(seed), edges_of(graph)
    sources, targets = [], []
    for local, node in enumerate(seeds):
        known = edges[0, edges[1] == node]
        if replace:
            chosen = known[torch.randint(len(known), (count,), generator=generator)]
        else:
            chosen = known[torch.randperm(len(known), generator=generator)[:count]]
        sources += chosen.tolist()
        targets += [local] * len(chosen)
    n_id = seeds + sorted(set(sources) - set(seeds))
    sources = [n_id.index(node) for node in sources]
    assert isinstance(graph.x, Tensor)
    nodes = torch.tensor(n_id)
    return Data(
        x=graph.x[nodes], edge_index=torch.tensor([sources, targets]), n_id=nodes, batch_size=len(seeds), num_nodes=None
    )


def in_the_graph(matrix: Tensor, nodes: Tensor, num_nodes: int) -> Tensor:
    """A matrix over the nodes of a batch, with columns for all nodes of the graph."""
    out = torch.zeros(len(matrix), num_nodes, dtype=matrix.dtype)
    out[:, nodes] = matrix
    return out


SEEDS = [3, 41, 17, 8]


def test_all_neighbors_give_the_rows_of_the_whole_matrix(block_graph: Graph) -> None:
    for rescale in (False, True):
        data = neighbor_form(block_graph, SEEDS, 60, 0)
        batch = from_pyg_batch(data, block_graph, 2, rescale=rescale)
        assert batch.targets.tolist() == SEEDS
        assert len(batch.adjs) == 2
        assert batch.adjs[0] is batch.adjs[1]
        found = in_the_graph(batch.adjs[0].to_dense(), batch.nodes, 60)
        torch.testing.assert_close(found, block_graph.adj.to_dense()[SEEDS])


def test_entries_follow_from_the_degrees_with_self_loops(block_graph: Graph) -> None:
    batch = from_pyg_batch(neighbor_form(block_graph, SEEDS, 2, 0), block_graph, 1)
    adj, degree = batch.adjs[0], block_graph.degree[batch.nodes]
    rows, cols = adj.row_index(), adj.col.long()
    torch.testing.assert_close(adj.value, (degree[rows] * degree[cols]).rsqrt())
    assert adj.rowptr.diff().tolist() == [3] * 4
    torch.testing.assert_close(adj.to_dense().diag(), degree[:4].reciprocal())
    assert isinstance(block_graph.x, Tensor)
    assert isinstance(batch.x, Tensor)
    assert torch.equal(batch.x, block_graph.x[SEEDS])
    assert torch.equal(batch.y, block_graph.y[SEEDS])
    train = block_graph.masks["train"]
    assert torch.equal(batch.weight, train[SEEDS] / 20)
    more = from_pyg_batch(neighbor_form(block_graph, SEEDS, 2, 0), block_graph, 1, num_batches=5)
    torch.testing.assert_close(more.weight, train[SEEDS] / 4)


@pytest.mark.parametrize("replace", [False, True], ids=["without replacement", "with replacement"])
def test_rescaling_makes_a_uniform_sample_unbiased(block_graph: Graph, replace: bool) -> None:
    """Mean over 200 samples against the whole matrix: within 5 standard errors of every entry."""
    graph, samples = block_graph.to(torch.float64), []
    for seed in range(200):
        batch = from_pyg_batch(neighbor_form(graph, SEEDS, 3, seed, replace=replace), graph, 1, rescale=True)
        samples.append(in_the_graph(batch.adjs[0].to_dense(), batch.nodes, 60))
    stacked = torch.stack(samples)
    error = stacked.std(dim=0) / math.sqrt(len(samples))
    exact = graph.adj.to_dense()[SEEDS]
    assert bool(((stacked.mean(dim=0) - exact).abs() <= 5 * error + 1e-9).all())
    plain = from_pyg_batch(neighbor_form(graph, SEEDS, 3, 0, replace=replace), graph, 1)
    assert float(plain.adjs[0].to_dense().sum()) < float(exact.sum())


def test_edges_into_the_halo_are_dropped_with_their_nodes(path_graph: Graph) -> None:
    # 0 is the target, 1 its neighbor, 2 was drawn for 1
    data = Data(edge_index=torch.tensor([[1, 2], [0, 1]]), n_id=torch.tensor([0, 1, 2]), batch_size=1)
    batch = from_pyg_batch(data, path_graph, 3)
    assert batch.nodes.tolist() == [0, 1]
    torch.testing.assert_close(batch.adjs[0].to_dense(), path_graph.adj.to_dense()[:1, :2])
    assert isinstance(path_graph.x, Tensor)
    # without `x`, the features come from the graph
    assert torch.equal(torch.as_tensor(batch.x), path_graph.x[:1])


def test_a_cluster_batch_equals_one_of_our_cluster_loader(block_graph: Graph) -> None:
    ours = next(iter(ClusterLoader(block_graph, torch.tensor([0, 30, 60]), 2, halo="none", seed=1)))
    start = int(ours.nodes[0])
    edges = edges_of(block_graph) - start
    inside = edges[:, ((edges >= 0) & (edges < 30)).all(dim=0)]
    data = Data(x=ours.x, edge_index=inside, n_id=torch.arange(start, start + 30))
    theirs = from_pyg_batch(data, block_graph, 2, num_batches=2)
    assert theirs.num_targets == 30
    assert torch.equal(theirs.nodes, ours.nodes)
    assert torch.equal(theirs.weight, ours.weight)
    torch.testing.assert_close(theirs.adjs[0].to_dense(), ours.adjs[0].to_dense())


def test_training_on_samples_lowers_the_loss(block_graph: Graph) -> None:
    torch.manual_seed(0)
    model = LazyGNN(3, 8, 3, num_nodes=60, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    nodes, losses = torch.arange(60), []
    for epoch in range(15):
        order = nodes[torch.randperm(60)].tolist()
        for seeds in (order[:30], order[30:]):
            data = neighbor_form(block_graph, seeds, 5, epoch)
            batch = from_pyg_batch(data, block_graph, 2, rescale=True, num_batches=2)
            loss = (batch.weight * block_graph.task.loss(model(batch), batch.y)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert sum(losses[-4:]) < 0.7 * sum(losses[:4])


@pytest.mark.parametrize("rescale", [False, True])
def test_the_gradient_of_a_sample_is_that_of_its_steps(block_graph: Graph, rescale: bool) -> None:
    """A sample is not symmetric; its gradient against autograd through the dense steps, histories held constant."""
    graph, alpha = block_graph.to(torch.float64), 0.1
    batch = from_pyg_batch(neighbor_form(graph, list(range(20)), 3, 0), graph, 2, rescale=rescale)
    square = batch.adjs[0].to_dense()[:, :20]
    assert float((square - square.T).norm()) > 0.1
    features = open_float64(60, 3, Drift())
    prop = LazyPropagation(alpha, features)
    stored, fresh = (random_rows(60, 3, seed) for seed in (0, 1))
    features.push(torch.arange(60), stored, fresh)
    x_in, grad = stored[:20].clone().requires_grad_(), fresh[:20]
    out = prop(x_in, batch)
    out.backward(grad)
    leaf = x_in.detach().clone().requires_grad_()
    x = stored[batch.targets] + leaf - fresh[batch.targets]
    for _ in range(2):
        halo = stored[batch.nodes[20:]]
        x = (1 - alpha) * batch.adjs[0].to_dense() @ torch.cat((x, halo)) + alpha * leaf
    torch.testing.assert_close(out, x, rtol=0, atol=1e-12)
    x.backward(grad)
    torch.testing.assert_close(x_in.grad, leaf.grad, rtol=0, atol=1e-12)


def test_a_symmetric_sample_is_its_own_transpose(block_graph: Graph) -> None:
    batch = from_pyg_batch(neighbor_form(block_graph, SEEDS, 60, 0), block_graph, 2)
    assert len(batch.backward_adjs) == 2
    torch.testing.assert_close(batch.backward_adjs[0].to_dense(), batch.adjs[0].to_dense())
    assert batch.to(torch.device("cpu")).backward_adjs[0] is batch.backward_adjs[0]


def bad(**fields: Any) -> Any:
    good = {"edge_index": torch.tensor([[1], [0]]), "n_id": torch.tensor([0, 1]), "batch_size": 1}
    return Data(**{key: value for key, value in (good | fields).items() if value is not None})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_id": None}, r"no `n_id`; for `ClusterLoader`, set `data.n_id = torch.arange\(data.num_nodes\)`"),
        ({"edge_index": None}, "no `edge_index`"),
        ({"n_id": torch.tensor([0, 9])}, "`n_id` holds 9, but the graph has 4 nodes"),
        ({"n_id": torch.tensor([0, 0])}, "`n_id` holds a node twice"),
        ({"batch_size": 3}, "`batch_size` is 3, but the mini-batch has 2 nodes"),
        ({"edge_index": torch.tensor([[5], [0]])}, "`edge_index` holds 5, but the mini-batch has 2 nodes"),
        ({"n_id": torch.tensor([0, 3])}, "has 1 edges that are not in the graph; `n_id` must hold"),
    ],
)
def test_inconsistent_fields_are_refused(path_graph: Graph, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        from_pyg_batch(bad(**fields), path_graph, 1)
