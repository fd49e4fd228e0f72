"""Mini-batch propagation, Eqs. (15)-(21), against the full graph, in float64."""

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.history.warmstart import WarmStart
from lazygnn.loader.cluster import ClusterLoader, Halo
from lazygnn.propagation import Drift, LazyPropagation, Mix, diffuse
from tests.helpers import dense_steps, exact_solution, open_float64, random_graph, random_rows

N, C, ALPHA = 60, 3, 0.15
PTR = torch.tensor([0, 10, 25, 26, 45, 60])


@pytest.fixture
def graph() -> Graph:
    return random_graph(N, 150)


def rows(seed: int) -> Tensor:
    return random_rows(N, C, seed)


def filled(start: WarmStart, values: Tensor, inputs: Tensor) -> StoredHistory:
    kept = open_float64(N, C, start)
    kept.push(torch.arange(N), values, inputs)
    return kept


def run_pass(prop: LazyPropagation, batch: Batch, x_in: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Runs one forward and backward pass of a batch; `x_in` and `grad` are those of the whole graph."""
    fresh = batch.nodes[: len(batch.x)]
    leaf = x_in[fresh].clone().requires_grad_()
    out = prop(leaf, batch)
    out.backward(grad[batch.targets])
    assert leaf.grad is not None
    return out.detach(), leaf.grad


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("start", [Mix(0.3), Mix(0.0), Mix(1.0)])
def test_a_halo_of_l_hops_is_exact_on_targets(graph: Graph, num_layers: int, start: WarmStart) -> None:
    x, stored = rows(1), rows(2)
    full = LazyPropagation(ALPHA, filled(start, stored, stored))
    expected = full(x, Batch.full(graph, num_layers))
    for batch in ClusterLoader(graph, PTR, num_layers, halo="paper"):
        prop = LazyPropagation(ALPHA, filled(start, stored, stored))
        out, _ = run_pass(prop, batch, x, x)
        torch.testing.assert_close(out, expected[batch.targets], rtol=0, atol=1e-13)


def test_a_halo_of_one_hop_less_is_not_exact_on_targets(graph: Graph) -> None:
    x, stored = rows(1), rows(2)
    expected = LazyPropagation(ALPHA, filled(Mix(0.3), stored, stored))(x, Batch.full(graph, 2))
    worst = 0.0
    for batch in ClusterLoader(graph, PTR, 1, halo="paper"):
        # the same one-hop batch, run for two steps
        short = Batch(batch.x, batch.y, batch.weight, batch.nodes, batch.num_targets, [batch.adjs[0]] * 2)
        out, _ = run_pass(LazyPropagation(ALPHA, filled(Mix(0.3), stored, stored)), short, x, x)
        worst = max(worst, float((out - expected[batch.targets]).abs().max().detach()))
    assert worst > 1e-3


@pytest.mark.parametrize("start", [Mix(0.0), Drift()])
@pytest.mark.parametrize("parts_per_batch", [1, 2])
def test_a_frozen_halo_converges_to_the_fixed_point(graph: Graph, start: WarmStart, parts_per_batch: int) -> None:
    x, grad = rows(1), rows(2)
    prop = LazyPropagation(ALPHA, filled(start, x, x), open_float64(N, C, start))
    loader = ClusterLoader(graph, PTR, 2, parts_per_batch=parts_per_batch)
    for _ in range(150):
        found = {
            int(t): g
            for batch in loader
            for t, g in zip(batch.targets, run_pass(prop, batch, x, grad)[1], strict=False)
        }
    exact, exact_grad = (exact_solution(graph.adj, value, ALPHA) for value in (x, grad))
    features, gradients = prop.features, prop.gradients
    assert isinstance(features, StoredHistory)
    assert isinstance(gradients, StoredHistory)
    everyone = torch.arange(N)
    torch.testing.assert_close(features.values.read(everyone), exact, rtol=0, atol=1e-10)
    torch.testing.assert_close(gradients.values.read(everyone), exact_grad, rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.stack([found[node] for node in range(N)]), exact_grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("halo", ["frozen", "paper"])
def test_the_halo_gets_no_gradient_and_is_not_written(graph: Graph, halo: Halo) -> None:
    x, grad, stored = rows(1), rows(2), rows(3)
    for batch in ClusterLoader(graph, PTR, 2, halo=halo):
        features, gradients = filled(Drift(0.1), stored, x), filled(Mix(0.5), stored, x)
        _, leaf_grad = run_pass(LazyPropagation(ALPHA, features, gradients), batch, x, grad)
        assert len(leaf_grad) == (len(batch.nodes) if halo == "paper" else batch.num_targets)
        assert not leaf_grad[batch.num_targets :].any()
        others = torch.ones(N, dtype=torch.bool)
        others[batch.targets] = False
        everyone = torch.arange(N)
        for kept in (features, gradients):
            assert torch.equal(kept.values.read(everyone)[others], stored[others])
            assert not torch.equal(kept.values.read(everyone)[batch.targets], stored[batch.targets])


def test_a_frozen_halo_keeps_its_stored_value_in_every_step(graph: Graph) -> None:
    x, stored = rows(1), rows(2)
    for batch in ClusterLoader(graph, PTR, 3):
        out, _ = run_pass(LazyPropagation(ALPHA, filled(Mix(0.0), stored, stored)), batch, x, x)
        value = stored.clone()
        for _ in range(3):
            value[batch.targets] = ((1 - ALPHA) * graph.adj.to_dense() @ value + ALPHA * x)[batch.targets]
        torch.testing.assert_close(out, value[batch.targets], rtol=0, atol=1e-13)


def test_without_a_gradient_history_gradients_stay_inside_the_batch(graph: Graph) -> None:
    x, grad = rows(1), rows(2)
    for batch in ClusterLoader(graph, PTR, 2):
        _, leaf_grad = run_pass(LazyPropagation(ALPHA, filled(Drift(), x, x)), batch, x, grad)
        inside = graph.adj.select(batch.targets).to_dense()[:, batch.targets]
        local = grad[batch.targets]
        expected = dense_steps(inside, local, local, ALPHA, 2)
        torch.testing.assert_close(leaf_grad, expected, rtol=0, atol=1e-13)


def test_all_parts_at_once_are_the_full_batch(graph: Graph) -> None:
    x = rows(1)
    (batch,) = ClusterLoader(graph, PTR, 2, parts_per_batch=5)
    assert torch.equal(diffuse(batch.adjs, x, x, ALPHA), diffuse([graph.adj] * 2, x, x, ALPHA))


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("gamma", [0.0, 0.4])
def test_gradients_of_the_papers_halo_start_from_their_history(graph: Graph, num_layers: int, gamma: float) -> None:
    """Eqs. (19)-(21) written out over the whole graph; a halo of `num_layers` hops is exact on the targets."""
    x, grad, stored = rows(1), rows(2), rows(3)
    for batch in ClusterLoader(graph, PTR, num_layers, halo="paper"):
        assert len(batch.nodes) > batch.num_targets
        gradients = filled(Mix(gamma), stored, stored)
        _, leaf_grad = run_pass(LazyPropagation(ALPHA, filled(Mix(0.5), x, x), gradients), batch, x, grad)
        # the halo has no loss, so its fresh gradient is zero
        fresh = torch.zeros_like(grad)
        fresh[batch.targets] = grad[batch.targets]
        start = (1 - gamma) * stored + gamma * fresh
        expected = dense_steps(graph.adj.to_dense(), start, fresh, ALPHA, num_layers)
        torch.testing.assert_close(leaf_grad[: batch.num_targets], expected[batch.targets], rtol=0, atol=1e-13)
        kept = gradients.values.read(batch.targets)
        torch.testing.assert_close(kept, expected[batch.targets], rtol=0, atol=1e-13)
