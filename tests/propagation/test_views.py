"""The near and the far view from one history, against dense expressions with the histories held constant."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import History, NoHistory, StoredHistory
from lazygnn.history.warmstart import WarmStart
from lazygnn.loader import ClusterLoader
from lazygnn.ops import reference
from lazygnn.propagation import Drift, Mix, Response, fit_response
from lazygnn.propagation.passes import Rule
from lazygnn.propagation.views import near_and_far
from tests.helpers import dense_steps, exact_solution, matrix_polynomial, open_float64, random_graph, random_rows
from tests.propagation.helpers import dense_views, saved_for_backward

N, C, ALPHA = 40, 3, 0.15
# one part has a single node
PTR = torch.tensor([0, 9, 20, 21, N])


@pytest.fixture
def graph() -> Graph:
    return random_graph(N, 3 * N)


def rows(seed: int) -> Tensor:
    return random_rows(N, C, seed)


def opened(beta: float, stored: tuple[Tensor, Tensor] | None = None) -> StoredHistory:
    """Opens a history that also reads inputs of the halo, with these solutions and inputs if they are given."""
    history = open_float64(N, C, Drift(beta), halo_inputs=True)
    if stored is not None:
        history.push(torch.arange(N), *stored)
    return history


def make_response(graph: Graph, num_layers: int, fitted: bool, *, beta: float = 0.0, sign: int = 1) -> Response:
    if not fitted:
        return Response.plain(num_layers)
    return fit_response(graph.adj, ALPHA, num_layers, beta=beta, sign=sign)


def batches(graph: Graph, num_layers: int, in_parts: bool) -> Iterator[Batch]:
    if in_parts:
        yield from ClusterLoader(graph, PTR, num_layers).sweep()
    else:
        yield Batch.full(graph, num_layers)


def check_pass(
    graph: Graph, batch: Batch, rule: Rule, beta: float, stored: tuple[Tensor, Tensor], grads: tuple[Tensor, Tensor]
) -> None:
    """Compares the views of a batch, and the gradient of its input, with the dense expression."""
    adj, targets = graph.adj.to_dense(), batch.targets
    leaf, expected_leaf = (rows(1)[targets].requires_grad_() for _ in range(2))
    expected = dense_views(
        adj, targets, expected_leaf, stored, rule.response, alpha=rule.alpha, beta=beta, sign=rule.sign
    )
    found = near_and_far(leaf, batch, rule)
    for view, dense in zip(found, expected, strict=True):
        torch.testing.assert_close(view, dense, rtol=0, atol=1e-12)
    near, far = (grad[targets] for grad in grads)
    torch.autograd.backward(found, (near, far))
    torch.autograd.backward(expected, (near, far))
    torch.testing.assert_close(leaf.grad, expected_leaf.grad, rtol=0, atol=1e-12)
    # by hand: the matrix and the polynomial of the forward pass, within the targets
    inside = adj[targets][:, targets]
    by_hand = inside @ near + matrix_polynomial(rule.response.polynomial(rule.alpha, rule.sign), inside, far)
    torch.testing.assert_close(leaf.grad, by_hand, rtol=0, atol=1e-12)


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_views_and_gradients_are_those_of_the_dense_expression(
    graph: Graph, num_layers: int, sign: int, beta: float, fitted: bool, in_parts: bool
) -> None:
    stored, grads = (rows(2), rows(3)), (rows(4), rows(5))
    response = make_response(graph, num_layers, fitted, beta=beta, sign=sign)
    assert response.is_plain is not fitted
    for batch in batches(graph, num_layers, in_parts):
        assert (len(batch.nodes) > batch.num_targets) == in_parts
        history = opened(beta, stored)
        check_pass(graph, batch, Rule(ALPHA, history, NoHistory(), response, sign=sign), beta, stored, grads)


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("sign", [1, -1])
def test_with_a_weight_of_one_the_far_view_is_the_input(
    graph: Graph, num_layers: int, sign: int, in_parts: bool
) -> None:
    stored, grads, response = (rows(2), rows(3)), (rows(4), rows(5)), Response.plain(num_layers)
    for batch in batches(graph, num_layers, in_parts):
        rule = Rule(1.0, opened(0.1, stored), NoHistory(), response, sign=sign)
        check_pass(graph, batch, rule, 0.1, stored, grads)
        _, far = near_and_far(rows(1)[batch.targets], batch, rule)
        torch.testing.assert_close(far, rows(1)[batch.targets], rtol=0, atol=1e-14)


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_first_pass_takes_all_that_is_not_stored_for_zero(
    graph: Graph, sign: int, fitted: bool, in_parts: bool
) -> None:
    response, nothing = make_response(graph, 2, fitted, beta=0.3, sign=sign), torch.zeros(N, C, dtype=torch.float64)
    for batch in batches(graph, 2, in_parts):
        rule = Rule(ALPHA, opened(0.3), NoHistory(), response, sign=sign)
        check_pass(graph, batch, rule, 0.3, (nothing, nothing), (rows(4), rows(5)))


@pytest.mark.parametrize("view", [0, 1], ids=["near", "far"])
def test_one_view_alone_has_its_gradient(graph: Graph, view: int) -> None:
    batch, adj, grad = Batch.full(graph, 2), graph.adj.to_dense(), rows(4)
    leaf, response = rows(1).requires_grad_(), make_response(graph, 2, fitted=True)
    near_and_far(leaf, batch, Rule(ALPHA, opened(0.0), NoHistory(), response))[view].backward(grad)
    expected = matrix_polynomial(response.polynomial(ALPHA) if view else [0.0, 1.0], adj, grad)
    torch.testing.assert_close(leaf.grad, expected, rtol=0, atol=1e-12)


def test_a_pass_stores_input_and_solution_of_its_targets_alone(graph: Graph) -> None:
    stored = rows(2), rows(3)
    for batch in batches(graph, 2, in_parts=True):
        history = opened(0.1, stored)
        _, far = near_and_far(rows(1)[batch.targets], batch, Rule(ALPHA, history, NoHistory(), Response.plain(2)))
        assert history.inputs is not None
        for store, before, now in zip((history.values, history.inputs), stored, (far, rows(1)), strict=True):
            kept = store.read(torch.arange(N))
            others = torch.ones(N, dtype=torch.bool).index_fill(0, batch.targets, False)
            assert torch.equal(kept[others], before[others])
            assert torch.equal(kept[batch.targets], now if now is far else now[batch.targets])


@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_input_that_does_not_change_reaches_the_exact_views(
    graph: Graph, sign: int, in_parts: bool, fitted: bool
) -> None:
    u, response = rows(1), make_response(graph, 2, fitted, sign=sign)
    rule = Rule(ALPHA, opened(0.0), NoHistory(), response, sign=sign)
    for _ in range(90):
        found = [near_and_far(u[batch.targets], batch, rule) for batch in batches(graph, 2, in_parts)]
    # the batches of a sweep are in node order
    near, far = (torch.cat(views) for views in zip(*found, strict=True))
    torch.testing.assert_close(near, graph.adj.to_dense() @ u, rtol=0, atol=1e-12)
    torch.testing.assert_close(far, exact_solution(graph.adj, u, ALPHA, sign=sign), rtol=0, atol=1e-10)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_with_a_beta_it_reaches_the_steady_response(graph: Graph, beta: float, sign: int) -> None:
    u, batch, response = rows(1), Batch.full(graph, 2), make_response(graph, 2, fitted=True, beta=beta, sign=sign)
    rule = Rule(ALPHA, opened(beta), NoHistory(), response, sign=sign)
    for _ in range(90):
        near, far = near_and_far(u, batch, rule)
    adj, steady = graph.adj.to_dense(), u
    for _ in range(90):
        steady = dense_steps(adj, torch.lerp(steady, u, beta), u, ALPHA, 2, sign=sign)
    torch.testing.assert_close(near, adj @ u, rtol=0, atol=1e-12)
    torch.testing.assert_close(far, steady, rtol=0, atol=1e-10)
    assert float((far - exact_solution(graph.adj, u, ALPHA, sign=sign)).norm()) > 0.005 * float(u.norm())


def test_one_part_is_the_full_batch(graph: Graph) -> None:
    (part,), stored = ClusterLoader(graph, torch.tensor([0, N]), 2), (rows(2), rows(3))
    assert not part.whole
    results = []
    for batch in (part, Batch.full(graph, 2)):
        leaf, rule = rows(1).requires_grad_(), Rule(ALPHA, opened(0.1, stored), NoHistory(), Response.plain(2))
        views = near_and_far(leaf, batch, rule)
        torch.autograd.backward(views, (rows(4), rows(5)))
        results.append((*views, leaf.grad))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("num_layers", [1, 2, 5])
def test_the_near_view_costs_one_product_and_its_gradient_none(
    graph: Graph, num_layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def listed(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*given: Any, **named: Any) -> Tensor:
            called.append(name)
            return function(*given, **named)

        return call

    for name in ("step", "spmm"):
        monkeypatch.setattr(reference, name, listed(name, getattr(reference, name)))
    rule = Rule(ALPHA, opened(0.1), NoHistory(), Response.plain(num_layers))
    views = near_and_far(rows(1).requires_grad_(), Batch.full(graph, num_layers), rule)
    assert called == ["step"] * num_layers + ["spmm"]
    called.clear()
    torch.autograd.backward(views, (rows(4), rows(5)))
    assert called == ["step"] * num_layers


@pytest.mark.parametrize("view", [0, 1])
def test_nothing_is_saved_for_backward(graph: Graph, view: int) -> None:
    rule = Rule(ALPHA, opened(0.1), NoHistory(), Response.plain(2))
    assert saved_for_backward(lambda x, batch: near_and_far(x, batch, rule)[view], Batch.full(graph, 2), rows(1)) == []


@pytest.mark.parametrize("start", [Drift(), Mix(0.5), None], ids=str)
def test_a_part_needs_inputs_of_its_halo(graph: Graph, start: WarmStart | None) -> None:
    history: History = NoHistory() if start is None else open_float64(N, C, start)
    rule = Rule(ALPHA, history, NoHistory(), Response.plain(2))
    batch = next(batches(graph, 2, in_parts=True))
    with pytest.raises(ConfigError, match="reads inputs of the halo; open the history with `halo_inputs=True`"):
        near_and_far(rows(1)[batch.targets], batch, rule)
    # the whole graph has no halo
    near, _ = near_and_far(rows(1), Batch.full(graph, 2), rule)
    torch.testing.assert_close(near, graph.adj.to_dense() @ rows(1), rtol=0, atol=1e-12)


def test_batches_that_do_not_fit_are_refused_with_a_remedy(graph: Graph) -> None:
    rule = Rule(ALPHA, opened(0.1), NoHistory(), Response.plain(2))
    with pytest.raises(ConfigError, match="the batch takes no steps; build it with `num_layers=2`"):
        near_and_far(rows(1), Batch.full(graph, 0), rule)
    batch = next(iter(ClusterLoader(graph, PTR, 2, halo="paper").sweep()))
    message = rf"has {len(batch.x)} rows for 9 targets; a near view needs batches with `halo=frozen`"
    with pytest.raises(ConfigError, match=message):
        near_and_far(rows(1)[batch.nodes], batch, rule)
    with pytest.raises(ConfigError, match="without a step on labeled rows, or the whole graph"):
        near_and_far(rows(1), Batch.full(graph, 2, label_step=True), rule)
    storing = rule._replace(gradients=open_float64(N, C, Mix(0.5)))
    with pytest.raises(ConfigError, match="a near view stores no gradients; omit `gradients`"):
        near_and_far(rows(1), Batch.full(graph, 2), storing)
    # nothing was stored
    assert isinstance(rule.features, StoredHistory)
    assert int(rule.features.num_pushes) == 0
