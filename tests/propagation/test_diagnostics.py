"""How far lazy propagation is from exact propagation, against dense solves."""

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import NoHistory
from lazygnn.history.warmstart import WarmStart
from lazygnn.propagation import Drift, LazyPropagation, Mix, named_diagnostics
from tests.helpers import exact_solution, open_float64, random_graph, random_rows

N, C, ALPHA = 40, 3, 0.1


@pytest.fixture
def graph() -> Graph:
    return random_graph(N, 3 * N)


def rows(seed: int) -> Tensor:
    return random_rows(N, C, seed)


def exact(graph: Graph, x: Tensor) -> Tensor:
    return exact_solution(graph.adj, x, ALPHA)


def lazy(start: WarmStart) -> LazyPropagation:
    history = open_float64(N, C, start)
    history.measure = True
    return LazyPropagation(ALPHA, history)


def test_the_gradient_is_compared_with_the_exact_one_once(graph: Graph) -> None:
    prop, batch, grad = lazy(Drift()), Batch.full(graph, 2), rows(1)
    x = rows(0).requires_grad_()
    prop(x, batch).backward(grad)
    assert x.grad is not None
    found = prop.diagnose(graph.adj, lambda: x.detach())
    expected = exact(graph, grad)
    cosine = float(torch.cosine_similarity(x.grad.flatten(), expected.flatten(), dim=0))
    assert found["gradient_cosine"] == pytest.approx(cosine, abs=2e-3)
    assert found["gradient_length"] == pytest.approx(float(x.grad.norm() / expected.norm()), abs=5e-3)
    assert prop.diagnose(graph.adj, lambda: x.detach()).keys() == {"fixed_point_error"}


@pytest.mark.parametrize("start", [Drift(), Mix(0.0)])
def test_the_stored_solution_is_compared_with_that_of_its_inputs(graph: Graph, start: WarmStart) -> None:
    """A history without inputs is compared with the inputs of now."""
    prop, x, now = lazy(start), rows(0), rows(2)
    out = prop(x, Batch.full(graph, 2))
    inputs = x if start.stores_inputs else now
    expected = float((out - exact(graph, inputs)).norm() / exact(graph, inputs).norm())
    found = prop.diagnose(graph.adj, lambda: now)
    assert found == {"fixed_point_error": pytest.approx(expected, abs=2e-3)}
    for _ in range(150):
        prop(x, Batch.full(graph, 2))
    assert prop.diagnose(graph.adj, lambda: x)["fixed_point_error"] < 2e-3


def test_a_stored_solution_that_is_off_by_half_has_an_error_of_a_half(graph: Graph) -> None:
    for start in (Drift(), Mix(0.5)):
        prop, x = lazy(start), rows(0)
        prop.features.push(torch.arange(N), 1.5 * exact(graph, x), x)
        assert prop.diagnose(graph.adj, lambda x=x: x)["fixed_point_error"] == pytest.approx(0.5, abs=5e-3)  # type: ignore[misc]
    assert LazyPropagation(ALPHA, NoHistory()).diagnose(graph.adj, lambda: rows(0)) == {}


def test_nothing_is_observed_unless_the_features_are_measured(graph: Graph) -> None:
    prop, x = lazy(Drift()), rows(0).requires_grad_()
    prop.features.measure = False  # type: ignore[attr-defined]
    prop(x, Batch.full(graph, 2)).backward(rows(1))
    assert "gradient_cosine" not in prop.diagnose(graph.adj, lambda: x.detach())


def test_the_high_pass_is_compared_with_its_own_solution(graph: Graph) -> None:
    history = open_float64(N, C, Drift())
    prop, x = LazyPropagation(ALPHA, history, sign=-1), rows(0).requires_grad_()
    history.measure = True
    for _ in range(60):
        prop(x, Batch.full(graph, 2))
    assert prop.diagnose(graph.adj, rows_are_not_needed)["fixed_point_error"] < 0.01
    # the gradient of forty steps is close to that of the solution
    prop(x, Batch.full(graph, 40)).backward(rows(1))
    found = prop.diagnose(graph.adj, rows_are_not_needed)
    assert found["gradient_cosine"] == pytest.approx(1, abs=2e-3)
    assert found["gradient_length"] == pytest.approx(1, abs=2e-2)


def rows_are_not_needed() -> Tensor:
    raise AssertionError("the history stores its inputs")


def test_a_gradient_that_was_observed_survives_a_checkpoint(graph: Graph) -> None:
    prop, batch = lazy(Drift()), Batch.full(graph, 2)
    prop(rows(0).requires_grad_(), batch).backward(rows(1))
    (diagnostics,) = named_diagnostics(torch.nn.Sequential(prop)).values()
    state = {name: value.clone() for name, value in diagnostics.state_dict().items()}
    expected = prop.diagnose(graph.adj, lambda: rows(0))
    assert "gradient_cosine" in expected
    # each gradient is reported once
    assert diagnostics.state_dict() == {}
    assert "gradient_cosine" not in prop.diagnose(graph.adj, lambda: rows(0))
    diagnostics.load_state_dict(state)
    assert prop.diagnose(graph.adj, lambda: rows(0)) == expected
    diagnostics.load_state_dict({})
    assert "gradient_cosine" not in prop.diagnose(graph.adj, lambda: rows(0))
