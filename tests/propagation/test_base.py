"""What all kinds of propagation share: the step of Eq. (4), and inference by steps or to the fixed point."""

import pytest
import torch
from torch import Tensor

from lazygnn import inference
from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.propagation import Diffusion, NoPropagation, diffuse
from lazygnn.propagation.base import exact_views
from tests.helpers import dense_steps, exact_solution, random_graph, random_rows

N, C, ALPHA = 40, 3, 0.1


@pytest.fixture
def graph() -> Graph:
    return random_graph(N, 3 * N)


@pytest.fixture
def x() -> Tensor:
    return random_rows(N, C, 1)


@pytest.fixture
def grad() -> Tensor:
    return random_rows(N, C, 2)


class InferenceOnly(Diffusion):
    def forward(self, x_in: Tensor, batch: Batch) -> Tensor:
        raise AssertionError("inference called `forward`")


def test_a_step_is_the_equation(graph: Graph, x: Tensor, grad: Tensor) -> None:
    dense = graph.adj.to_dense()
    expected = 0.9 * dense @ (0.9 * dense @ x + 0.1 * grad) + 0.1 * grad
    torch.testing.assert_close(diffuse([graph.adj] * 2, x, grad, ALPHA), expected, rtol=0, atol=1e-14)


def test_a_step_with_a_sign_of_minus_one_subtracts_the_product(graph: Graph, x: Tensor, grad: Tensor) -> None:
    dense = graph.adj.to_dense()
    expected = -0.9 * dense @ (-0.9 * dense @ x + 0.1 * grad) + 0.1 * grad
    torch.testing.assert_close(diffuse([graph.adj] * 2, x, grad, ALPHA, sign=-1), expected, rtol=0, atol=1e-14)


def test_rows_that_a_step_does_not_reach_keep_their_value(graph: Graph, x: Tensor, grad: Tensor) -> None:
    out = diffuse([graph.adj.rows(10)], x, grad[:10], ALPHA)
    expected = dense_steps(graph.adj.to_dense(), x, grad, ALPHA, 1)
    torch.testing.assert_close(out[:10], expected[:10], rtol=0, atol=1e-14)
    assert torch.equal(out[10:], x[10 : len(out)])


@pytest.mark.parametrize("columns", [1, C])
@pytest.mark.parametrize("eval_layers", [0, 5, None])
@pytest.mark.parametrize("sign", [1, -1])
def test_inference_takes_exact_steps_or_solves_for_the_fixed_point(
    monkeypatch: pytest.MonkeyPatch, graph: Graph, x: Tensor, eval_layers: int | None, columns: int, sign: int
) -> None:
    monkeypatch.setattr(inference, "INFERENCE_BYTES", 5 * N * x.element_size() * columns)
    prop = InferenceOnly(ALPHA, eval_layers=eval_layers, eval_tolerance=1e-10, sign=sign)
    if eval_layers is None:
        expected = exact_solution(graph.adj, x, ALPHA, sign=sign)
    else:
        expected = dense_steps(graph.adj.to_dense(), x, x, ALPHA, eval_layers, sign=sign)
    error = 1e-8 if eval_layers is None else 1e-12
    torch.testing.assert_close(prop.infer(x, graph.adj), expected, rtol=0, atol=error)
    near, far = exact_views(prop, x, Batch.full(graph, 2))
    torch.testing.assert_close(near, graph.adj.to_dense() @ x, rtol=0, atol=1e-12)
    torch.testing.assert_close(far, expected, rtol=0, atol=error)


def test_exact_views_need_the_whole_graph(graph: Graph, x: Tensor) -> None:
    prop, batch = InferenceOnly(ALPHA, eval_layers=2, eval_tolerance=0.0), Batch.full(graph, 2)
    part = Batch(batch.x, batch.y, batch.weight, batch.nodes, N, batch.adjs)
    with pytest.raises(ValueError, match=r"use `model\.infer\(graph\)` or `Batch\.full`"):
        exact_views(prop, x, part)


def test_inference_in_place_overwrites_its_input(graph: Graph, x: Tensor) -> None:
    prop, given = InferenceOnly(ALPHA, eval_layers=2, eval_tolerance=0.0), x.clone()
    out = prop.infer(given, graph.adj)
    assert torch.equal(given, x)
    assert prop.infer(given, graph.adj, in_place=True) is given
    torch.testing.assert_close(given, out, rtol=0, atol=1e-12)


def test_a_propagation_without_histories_fills_and_diagnoses_nothing(graph: Graph, x: Tensor) -> None:
    prop = InferenceOnly(ALPHA, eval_layers=2, eval_tolerance=0.0)
    prop.fill(x, Batch.full(graph, 2))
    assert prop.diagnose(graph.adj, lambda: x) == {}


def test_no_propagation_leaves_the_graph_out(graph: Graph, x: Tensor) -> None:
    prop = NoPropagation()
    assert torch.equal(prop(x, Batch.full(graph, 0)), x)
    assert torch.equal(prop.infer(x, graph.adj), x)


def test_no_propagation_returns_the_targets_of_a_batch(graph: Graph, x: Tensor) -> None:
    full = Batch.full(graph, 0)
    part = Batch(full.x, full.y, full.weight, full.nodes, 10, [])
    assert torch.equal(NoPropagation()(x, part), x[:10])


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.5])
def test_alpha_must_be_in_its_range(alpha: float) -> None:
    with pytest.raises(ValueError, match=rf"`alpha` must be in \(0, 1\], got {alpha}"):
        InferenceOnly(alpha, eval_layers=2, eval_tolerance=0.0)


@pytest.mark.parametrize("sign", [0, 2, -0.5])
def test_sign_must_be_one_or_minus_one(sign: int) -> None:
    with pytest.raises(ValueError, match=f"`sign` must be 1 for the low-pass or -1 for the high-pass, got {sign}"):
        InferenceOnly(ALPHA, eval_layers=2, eval_tolerance=0.0, sign=sign)


def test_a_weight_whose_solution_would_not_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`alpha` is 1e-12, .* takes 7,\d+,\d+ products; give a larger one"):
        InferenceOnly(1e-12, eval_layers=None, eval_tolerance=1e-4)
    assert InferenceOnly(1e-12, eval_layers=10, eval_tolerance=1e-4).alpha == 1e-12
    assert InferenceOnly(1e-7, eval_layers=None, eval_tolerance=1e-4).alpha == 1e-7
