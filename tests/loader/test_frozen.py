"""Sampled batches within a halo of stored rows: what they hold, and the lazy pass over them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import FrozenNeighborLoader, FrozenSaintLoader, SaintLoader
from lazygnn.loader.sampled import SampledLoader
from lazygnn.propagation import Drift, LazyPropagation, Mix
from tests.helpers import exact_solution, open_float64, random_rows

ALPHA = 0.1
SUBGRAPHS: dict[str, Any] = {"sampler": "walk", "num_samples": 5, "coverage": 5}


@pytest.fixture
def graph(block_graph: Graph) -> Graph:
    return block_graph.to(torch.float64)


def in_the_graph(batch: Batch, matrix: Tensor) -> Tensor:
    """The rows of a batch, with columns for all nodes of the graph."""
    out = torch.zeros(batch.num_targets, 60, dtype=matrix.dtype)
    out[:, batch.nodes] = matrix
    return out


@pytest.mark.parametrize("num_neighbors", [[3], [2, 3], [1, 2, 4]])
def test_all_hops_but_the_farthest_are_targets(graph: Graph, num_neighbors: list[int]) -> None:
    dense = graph.adj.to_dense()
    assert isinstance(graph.x, Tensor)
    for batch in FrozenNeighborLoader(graph, 2, num_neighbors, batch_size=4, seed=3):
        adj = batch.adjs[0]
        assert batch.adjs[1] is adj
        assert adj.shape == (batch.num_targets, len(batch.nodes))
        assert (batch.num_targets == 4) == (len(num_neighbors) == 1)
        assert len(batch.nodes.unique()) == len(batch.nodes)
        assert torch.equal(torch.as_tensor(batch.x), graph.x[batch.targets])
        found, exact = in_the_graph(batch, adj.to_dense()), dense[batch.targets]
        assert bool((exact[found != 0] != 0).all())
        # the node itself, and as many neighbors as wanted of those that there are
        own = torch.arange(batch.num_targets)
        torch.testing.assert_close(found[own, batch.targets], exact[own, batch.targets], rtol=0, atol=0)
        drawn, degree = (found != 0).sum(dim=1) - 1, (exact != 0).sum(dim=1) - 1
        assert torch.equal(drawn[:4], degree[:4].clamp(max=num_neighbors[-1]))
        assert bool((drawn <= degree.clamp(max=max(num_neighbors))).all())
        # no node is in the halo without an edge to a target
        assert bool((found[:, batch.nodes] != 0).any(dim=0).all())


def test_an_epoch_has_the_loss_of_every_node_once(graph: Graph) -> None:
    loader = FrozenNeighborLoader(graph, 2, [3, 3], batch_size=8)
    weight, visits = torch.zeros(60), torch.zeros(60)
    for batch in loader:
        weight[batch.targets] += batch.weight
        visits[batch.targets] += 1
    assert len(loader) == 8
    torch.testing.assert_close(weight / 8, graph.masks["train"] / 20)
    # neighbors are stored in every batch that computes them
    assert float(visits.mean()) > 2


def test_the_roots_of_the_degrees_keep_their_value_whatever_is_drawn(graph: Graph) -> None:
    roots = graph.degree.to(torch.float64).sqrt()
    for batch in FrozenNeighborLoader(graph, 1, [1, 2], batch_size=10):
        found = batch.adjs[0].to_dense() @ roots[batch.nodes]
        torch.testing.assert_close(found, roots[batch.targets], rtol=0, atol=1e-6)


def test_a_sweep_holds_every_node_once_without_neighbors(graph: Graph) -> None:
    batches = list(FrozenNeighborLoader(graph, 2, [3], batch_size=25).sweep())
    assert torch.equal(torch.cat([batch.nodes for batch in batches]), torch.arange(60))
    assert [(batch.num_targets, len(batch.adjs)) for batch in batches] == [(25, 0), (25, 0), (10, 0)]


@pytest.mark.parametrize("count", [0, -2])
def test_an_impossible_number_of_neighbors_is_refused(block_graph: Graph, count: int) -> None:
    with pytest.raises(ValueError, match=f"must be at least 1, or -1 for all, in every layer, got {count}"):
        FrozenNeighborLoader(block_graph, 2, [count, 3])


def test_rows_of_a_subgraph_are_complete_and_its_loss_is_that_of_graphsaint(block_graph: Graph) -> None:
    dense = block_graph.adj.to_dense()
    plain = SaintLoader(block_graph, 2, **SUBGRAPHS)
    loader = FrozenSaintLoader(block_graph, 2, **SUBGRAPHS)
    assert len(loader) == len(plain)
    for batch, other in zip(loader, plain, strict=True):
        assert torch.equal(batch.targets, other.nodes)
        assert torch.equal(batch.weight, other.weight)
        assert len(batch.nodes) > batch.num_targets
        assert len(batch.nodes.unique()) == len(batch.nodes)
        assert torch.equal(in_the_graph(batch, batch.adjs[0].to_dense()), dense[batch.targets])
        assert isinstance(block_graph.x, Tensor)
        assert torch.equal(torch.as_tensor(batch.x), block_graph.x[batch.targets])


def test_one_subgraph_is_not_an_epoch_since_histories_would_not_be_filled(block_graph: Graph) -> None:
    assert len(SaintLoader(block_graph, 2, sampler="node", num_samples=60)) == 1
    assert len(FrozenSaintLoader(block_graph, 2, sampler="node", num_samples=60)) == 2


def complete_samples(graph: Graph) -> dict[str, Batch]:
    """Batches of all nodes, with all neighbors."""
    subgraphs = FrozenSaintLoader(graph, 2, **SUBGRAPHS)
    return {
        "one hop": next(iter(FrozenNeighborLoader(graph, 2, [-1]))),
        "two hops": next(iter(FrozenNeighborLoader(graph, 2, [100, -1]))),
        "saint": subgraphs.make(torch.arange(60)),
    }


@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
@pytest.mark.parametrize("sample", ["one hop", "two hops", "saint"])
def test_a_full_sample_equals_the_full_batch(graph: Graph, sample: str, fitted: bool) -> None:
    """Output, gradient and both histories of three visits, with gradients stored."""

    def visits(batch: Batch) -> list[Tensor]:
        features, gradients = open_float64(60, 3, Drift(0.1)), open_float64(60, 3, Drift(0.4))
        prop, found = LazyPropagation(ALPHA, features, gradients), list[Tensor]()
        if fitted:
            prop.fit(graph.adj, 2)
        for seed in range(3):
            x_in = random_rows(60, 3, seed).requires_grad_()
            out = prop(x_in, batch)
            out.backward(random_rows(60, 3, 9 + seed))
            assert x_in.grad is not None
            stored = [history.values.read(torch.arange(60)) for history in (features, gradients)]
            found += [out.detach(), x_in.grad, *stored]
        return found

    batch = complete_samples(graph)[sample]
    assert batch.num_targets == len(batch.nodes) == 60
    for one, other in zip(visits(batch), visits(Batch.full(graph, 2)), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
@pytest.mark.parametrize("sample", ["one hop", "two hops", "saint"])
def test_the_gradient_of_a_sample_is_that_of_its_steps(graph: Graph, sample: str, fitted: bool) -> None:
    """Against autograd through the dense steps, with histories as constants; sampled neighbors are not symmetric."""
    batch: Batch = {
        "one hop": next(iter(FrozenNeighborLoader(graph, 2, [3], batch_size=20))),
        "two hops": next(iter(FrozenNeighborLoader(graph, 2, [2, 3], batch_size=10))),
        "saint": next(iter(FrozenSaintLoader(graph, 2, **SUBGRAPHS))),
    }[sample]
    dense, size = batch.adjs[0].to_dense(), batch.num_targets
    assert size < len(batch.nodes)
    assert (float((dense[:, :size] - dense[:, :size].T).norm()) > 0.1) == (sample != "saint")
    features = open_float64(60, 3, Drift(0.1))
    prop = LazyPropagation(ALPHA, features)
    if fitted:
        prop.fit(graph.adj, 2)
    stored, inputs = random_rows(60, 3, 0), random_rows(60, 3, 1)
    features.push(torch.arange(60), stored, inputs)
    x_in, grad = random_rows(size, 3, 2).requires_grad_(), random_rows(size, 3, 3)
    out = prop(x_in, batch)
    out.backward(grad)
    leaf, before, halo = random_rows(size, 3, 2).requires_grad_(), inputs[batch.targets], stored[batch.nodes[size:]]
    start, sources = (1.0, (1.0, 1.0)) if prop.response is None else (prop.response.start, prop.response.sources)
    x = torch.lerp(stored[batch.targets], before, 0.1) + start * (leaf - before)
    for weight in sources:
        x = (1 - ALPHA) * dense @ torch.cat((x, halo)) + ALPHA * (before + weight * (leaf - before))
    torch.testing.assert_close(out, x, rtol=0, atol=1e-12)
    x.backward(grad)
    torch.testing.assert_close(x_in.grad, leaf.grad, rtol=0, atol=1e-12)
    # targets alone are stored
    expected = stored.clone()
    expected[batch.targets] = x.detach()
    torch.testing.assert_close(features.values.read(torch.arange(60)), expected, rtol=0, atol=1e-12)


def test_stored_gradients_of_the_halo_come_over_the_edges_that_were_drawn(graph: Graph) -> None:
    """One plain step backward from fresh gradients of the targets and stored ones of the halo."""
    batch = next(iter(FrozenNeighborLoader(graph, 1, [2], batch_size=15)))
    gradients, stored, grad = open_float64(60, 3, Mix(1.0)), random_rows(60, 3, 0), random_rows(15, 3, 1)
    gradients.push(torch.arange(60), stored, stored)
    x_in = random_rows(15, 3, 2).requires_grad_()
    LazyPropagation(ALPHA, open_float64(60, 3, Drift()), gradients)(x_in, batch).backward(grad)
    dense = batch.adjs[0].to_dense()
    expected = dense[:, :15].T @ grad + dense[:, 15:] @ stored[batch.nodes[15:]]
    torch.testing.assert_close(x_in.grad, (1 - ALPHA) * expected + ALPHA * grad, rtol=0, atol=1e-12)


def passes(loader: SampledLoader, x_in: Tensor, alpha: float, num_epochs: int) -> Tensor:
    """Returns what is stored after lazy passes with an input that does not change."""
    features = open_float64(60, 3, Drift())
    prop = LazyPropagation(alpha, features)
    features.push(torch.arange(60), x_in, x_in)
    with torch.no_grad():
        for _ in range(num_epochs):
            for batch in loader:
                prop(x_in[batch.targets], batch)
    return features.values.read(torch.arange(60))


def test_passes_over_subgraphs_reach_the_fixed_point(graph: Graph) -> None:
    x_in = random_rows(60, 3, 0)
    loader = FrozenSaintLoader(graph, 2, sampler="node", num_samples=6, coverage=5)
    exact = exact_solution(graph.adj, x_in, 0.5)
    torch.testing.assert_close(passes(loader, x_in, 0.5, 30), exact, rtol=0, atol=1e-6)


def test_passes_with_the_edge_weights_of_graphsaint_would_grow_without_bound(graph: Graph) -> None:
    """The reason for the halo; in a single pass these weights are unbiased."""
    x_in, exact = random_rows(60, 3, 0), exact_solution(graph.adj, random_rows(60, 3, 0), ALPHA)
    errors = []
    for kind in (SaintLoader, FrozenSaintLoader):
        stored = passes(kind(graph, 2, sampler="node", num_samples=6, coverage=50), x_in, ALPHA, 25)
        errors.append(float((stored - exact).norm() / exact.norm()))
    assert errors[0] > 1e3
    assert errors[1] < 0.05


def test_passes_over_sampled_neighbors_stay_near_the_fixed_point(graph: Graph) -> None:
    """In units of the roots of the degrees, no row grows beyond the largest input, however many passes there are."""
    x_in, roots = random_rows(60, 3, 0), graph.degree.to(torch.float64).sqrt().unsqueeze(1)
    exact = exact_solution(graph.adj, x_in, ALPHA)

    def error(count: int) -> float:
        stored = passes(FrozenNeighborLoader(graph, 2, [count], batch_size=20), x_in, ALPHA, 20)
        assert float((stored / roots).abs().max()) <= float((x_in / roots).abs().max()) + 1e-6
        return float((stored - exact).norm() / exact.norm())

    one, four, everyone = error(1), error(4), error(-1)
    assert one > four > everyone
    assert everyone < 0.02
