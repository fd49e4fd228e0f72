"""How a pass answers a change of its input: fitted steps against dense polynomials and the exact solution."""

from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.history import NoHistory, open_history
from lazygnn.loader import ClusterLoader
from lazygnn.propagation import Drift, LazyPropagation, Mix
from lazygnn.propagation.response import Response, fit_response, steady_response
from tests.helpers import dense_steps, exact_solution, matrix_polynomial, open_float64, random_graph, random_rows
from tests.propagation.helpers import negative

ALPHA = 0.1
N, C = 40, 3


@pytest.fixture
def graph() -> Graph:
    return random_graph(N, 90)


def rows(seed: int) -> Tensor:
    return random_rows(N, C, seed)


def lazy(response: Response | None, beta: float = 0.0) -> LazyPropagation:
    features = open_float64(N, C, Drift(beta))
    prop = LazyPropagation(ALPHA, features)
    prop.response = response
    return prop


@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_the_plain_response_is_that_of_plain_steps(graph: Graph, num_layers: int) -> None:
    plain, x = Response.plain(num_layers), rows(0)
    expected = dense_steps(graph.adj.to_dense(), x, x, ALPHA, num_layers)
    torch.testing.assert_close(matrix_polynomial(plain.polynomial(ALPHA), graph.adj.to_dense(), x), expected)
    assert plain.is_plain
    batch = Batch.full(graph, num_layers)
    assert torch.equal(lazy(plain)(x, batch), lazy(None)(x, batch))


def standing(z: Tensor, num_layers: int, beta: float) -> Tensor:
    """What a mode is multiplied by in the end: the fixed point of `h = kept (1 - beta) h + kept beta + steps`."""
    kept = ((1 - ALPHA) * z) ** num_layers
    steps = ALPHA * sum(((1 - ALPHA) * z) ** step for step in range(num_layers))
    return (steps + beta * kept) / (1 - (1 - beta) * kept)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("beta", [0.0, 0.1, 1.0])
def test_a_standing_input_is_answered_in_closed_form(graph: Graph, num_layers: int, beta: float) -> None:
    z, modes = torch.linalg.eigh(graph.adj.to_dense())
    x = rows(3)
    expected = modes @ (standing(z, num_layers, beta).unsqueeze(1) * (modes.T @ x))
    found = steady_response(graph.adj, x, ALPHA, num_layers, beta)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3 * float(x.abs().max()))
    if beta == 0:
        torch.testing.assert_close(expected, exact_solution(graph.adj, x, ALPHA))
    # and it is what the passes themselves come to
    prop, batch = lazy(fit_response(graph.adj, ALPHA, num_layers, beta=beta), beta), Batch.full(graph, num_layers)
    for _ in range(260):
        out = prop(x, batch)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


def test_with_a_mix_of_a_tenth_two_steps_stand_where_ten_exact_ones_do() -> None:
    z = torch.linspace(-1, 1, 400, dtype=torch.float64)
    ten = ALPHA * sum(((1 - ALPHA) * z) ** step for step in range(10)) + ((1 - ALPHA) * z) ** 10
    assert float((standing(z, 2, 0.1) - ten).abs().max()) < 0.06
    assert float((standing(z, 2, 0.0) - ten).square().mean()) > 2 * float((standing(z, 2, 0.1) - ten).square().mean())


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("level", [1.0, 0.8])
@pytest.mark.parametrize("beta", [0.0, 0.2])
def test_the_fit_is_the_least_squares_one(graph: Graph, num_layers: int, level: float, beta: float) -> None:
    """Against a dense fit in the eigenvalues: random inputs weigh every mode alike, many of them nearly so."""
    z = torch.linalg.eigvalsh(graph.adj.to_dense())
    wanted = standing(z, num_layers, beta)
    fitted = fit_response(graph.adj, ALPHA, num_layers, beta=beta, level=level)
    coefficients = fitted.polynomial(ALPHA)
    assert sum(coefficients) == pytest.approx(level, abs=2e-3)

    def error(values: list[float]) -> float:
        return float((sum(c * z**k for k, c in enumerate(values)) - wanted).square().mean().sqrt())

    basis = torch.stack([(z - 1) * z**k for k in range(num_layers)], dim=1)
    best = level + basis @ torch.linalg.lstsq(basis, (wanted - level).unsqueeze(1)).solution.flatten()
    least = float((best - wanted).square().mean().sqrt())
    # weights are rounded to a thousandth
    assert least <= error(coefficients) + 2e-3
    assert error(coefficients) < 1.25 * least + 5e-4
    if level == 1 and num_layers > 1:
        assert error(coefficients) < error(Response.plain(num_layers).polynomial(ALPHA))


@pytest.mark.parametrize(("further", "level"), [(0, 0.8), (1, 0.85)])
def test_a_fit_that_is_told_no_level_has_one(graph: Graph, further: int, level: float) -> None:
    open_, held = (fit_response(graph.adj, ALPHA, 2, further=further, level=value) for value in (None, level))
    assert open_ == held
    assert sum(open_.polynomial(ALPHA)) == pytest.approx(level, abs=2e-3)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize("label_step", [False, True])
def test_the_first_pass_is_the_polynomial_forward_and_backward(
    graph: Graph, num_layers: int, beta: float, label_step: bool
) -> None:
    response = fit_response(graph.adj, ALPHA, num_layers, further=int(label_step), beta=beta)
    batch, adj = Batch.full(graph, num_layers, label_step=label_step), graph.adj.to_dense()
    x, grad, weights = rows(0).requires_grad_(), rows(1), response.polynomial(ALPHA)
    out = lazy(response, beta)(x, batch)
    torch.testing.assert_close(out, matrix_polynomial(weights, adj, x.detach()), rtol=0, atol=1e-12)
    out.backward(grad)
    torch.testing.assert_close(x.grad, matrix_polynomial(weights, adj, grad), rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_a_change_is_answered_by_the_polynomial(graph: Graph, num_layers: int, beta: float) -> None:
    response = fit_response(graph.adj, ALPHA, num_layers, beta=beta)
    prop, batch, adj = lazy(response, beta), Batch.full(graph, num_layers), graph.adj.to_dense()
    before, after = rows(0), rows(1)
    stored = prop(before, batch)
    expected = dense_steps(adj, torch.lerp(stored, before, beta), before, ALPHA, num_layers)
    expected = expected + matrix_polynomial(response.polynomial(ALPHA), adj, after - before)
    torch.testing.assert_close(prop(after, batch), expected, rtol=0, atol=1e-12)


def test_an_input_that_stands_still_reaches_the_exact_solution(graph: Graph) -> None:
    prop, batch = lazy(fit_response(graph.adj, ALPHA, 2)), Batch.full(graph, 2)
    prop(rows(0), batch)
    for _ in range(200):
        out = prop(rows(1), batch)
    torch.testing.assert_close(out, exact_solution(graph.adj, rows(1), ALPHA), rtol=0, atol=1e-12)


def test_backward_is_the_derivative_of_forward(graph: Graph) -> None:
    response = fit_response(graph.adj, ALPHA, 2)
    prop, batch, grad = lazy(response), Batch.full(graph, 2), rows(5)
    prop(rows(0), batch)
    leaf = rows(1).requires_grad_()
    prop(leaf, batch).backward(grad)
    assert leaf.grad is not None
    expected = matrix_polynomial(response.polynomial(ALPHA), graph.adj.to_dense(), grad)
    torch.testing.assert_close(leaf.grad, expected, rtol=0, atol=1e-12)


def test_with_a_frozen_halo_every_part_comes_to_the_exact_solution(graph: Graph) -> None:
    prop, x = lazy(fit_response(graph.adj, ALPHA, 3)), rows(1)
    loader = ClusterLoader(graph, torch.tensor([0, 15, 40]), 3)
    for batch in loader.sweep():
        prop.fill(x[batch.targets], batch)
    for _ in range(150):
        for batch in loader:
            out = prop(x[batch.targets], batch)
            targets = batch.targets
    torch.testing.assert_close(out, exact_solution(graph.adj, x, ALPHA)[targets], rtol=0, atol=1e-10)


def test_what_cannot_be_fitted_is_refused(graph: Graph) -> None:
    for level in (0.0, 1.5):
        with pytest.raises(ValueError, match=rf"`level` must be in \(0, 1\], got {level}"):
            fit_response(graph.adj, ALPHA, 2, level=level)
    with pytest.raises(ValueError, match=r"`beta` must be in \[0, 1\], got 1.5"):
        fit_response(graph.adj, ALPHA, 2, beta=1.5)
    with pytest.raises(ValueError, match="`num_layers` must be at least 1, got 0"):
        fit_response(graph.adj, ALPHA, 0)
    assert fit_response(graph.adj, 1.0, 2).is_plain
    assert fit_response(graph.adj, ALPHA, 2, beta=1.0).is_plain


def test_what_is_of_another_type_is_named(graph: Graph) -> None:
    for name, value in (("features", None), ("gradients", 0.5)):
        values: dict[str, Any] = {"features": NoHistory(), name: value}
        with pytest.raises(ConfigError, match=rf"`{name}` is {value}, of type .*; open one with `open_history"):
            LazyPropagation(ALPHA, **values)
    with pytest.raises(ConfigError, match=r"`start` is 0.1, of type float; give `Drift\(\)` or `Mix\(weight\)`"):
        open_history(N, C, 0.1)  # type: ignore[arg-type]
    given: dict[str, Any] = {"alpha": ALPHA, "num_layers": 2}
    for name in ("alpha", "beta", "level"):
        with pytest.raises(ConfigError, match=f"`{name}` is '0.1', of type str; give a number"):
            fit_response(graph.adj, **(given | {name: "0.1"}))
    for name in ("num_layers", "further", "seed"):
        for value in (1.5, True):
            with pytest.raises(ConfigError, match=f"`{name}` is {value}, of type .*; give a whole number"):
                fit_response(graph.adj, **(given | {name: value}))


def test_a_response_must_fit_the_batch(graph: Graph) -> None:
    message = r"this batch takes 3 and 0; call `fit\(adj, num_layers=3, label_step=False\)`"
    with pytest.raises(ConfigError, match=f"the response is fitted to 2 steps and 0 on labeled rows, {message}"):
        lazy(fit_response(graph.adj, ALPHA, 2))(rows(0), Batch.full(graph, 3))
    with pytest.raises(ConfigError, match="fitted to 2 steps and 0 on labeled rows, this batch takes 1 and 1;"):
        lazy(fit_response(graph.adj, ALPHA, 2))(rows(0), Batch.full(graph, 1, label_step=True))
    with pytest.raises(ConfigError, match="fitted to 1 steps and 1 on labeled rows, this batch takes 2 and 0;"):
        lazy(fit_response(graph.adj, ALPHA, 1, further=1))(rows(0), Batch.full(graph, 2))


@pytest.mark.parametrize("beta", [0.0, 0.2])
@pytest.mark.parametrize("label_step", [False, True])
def test_a_propagation_fits_its_own_alpha_and_beta(graph: Graph, beta: float, label_step: bool) -> None:
    for alpha in (ALPHA, 0.3):
        features = open_float64(N, C, Drift(beta))
        prop = LazyPropagation(alpha, features).fit(graph.adj, 2, label_step=label_step, level=0.7)
        assert prop.response == fit_response(graph.adj, alpha, 2, further=int(label_step), beta=beta, level=0.7)
        others = [fit_response(graph.adj, alpha, 2, further=int(label_step), beta=b, level=0.7) for b in (0.1, 0.5)]
        assert prop.response not in others


def test_a_fit_needs_a_history_that_stores_inputs(graph: Graph) -> None:
    mixing = open_float64(N, C, Mix(0.5))
    with pytest.raises(ConfigError, match=r"needs a history that stores inputs, Mix\(beta=0.5\) stores none"):
        LazyPropagation(ALPHA, mixing).fit(graph.adj, 2)
    drifting = open_float64(N, C, Drift())
    with pytest.raises(ConfigError, match=r"Mix\(beta=0.5\) stores none; open it with `Drift"):
        LazyPropagation(ALPHA, drifting, mixing).fit(graph.adj, 2)


@pytest.mark.parametrize("fitted", [False, True])
def test_gradients_kept_for_the_halo_carry_over_cut_edges(graph: Graph, fitted: bool) -> None:
    """Passes over the parts with a constant gradient come to the exact one, which parts alone do not."""
    grad, exact = rows(5), exact_solution(graph.adj, rows(5), ALPHA)
    errors = {}
    for kept in (False, True):
        features, gradients = (open_float64(N, C, start) for start in (Drift(), Mix(1.0)))
        prop = LazyPropagation(ALPHA, features, gradients if kept else None)
        if fitted:
            prop.fit(graph.adj, 20, level=1.0)
        loader = ClusterLoader(graph, torch.tensor([0, 15, 40]), 20)
        for batch in loader.sweep():
            prop.fill(rows(1)[batch.targets], batch)
        for _ in range(30):
            found = torch.zeros(N, C, dtype=torch.float64)
            for batch in loader.sweep():
                leaf = rows(1)[batch.targets].requires_grad_()
                prop(leaf, batch).backward(grad[batch.targets])
                assert leaf.grad is not None
                found[batch.targets] = leaf.grad
        errors[kept] = float((found - exact).norm() / exact.norm())
    # twenty plain steps leave a little of the start; the part that no one carries is far more
    assert errors[True] < (0.2 if not fitted else 0.1)
    assert errors[False] > 3 * errors[True]


def test_a_mix_without_inputs_refuses_a_weight_of_the_change() -> None:
    with pytest.raises(ValueError, match=r"Mix\(beta=0.5\) stores no inputs, so the weight .* must be 1, got 0.8"):
        Mix(0.5).targets(rows(0), rows(1), None, 0.8)
    assert torch.equal(Mix(1.0).targets(rows(0), rows(1), None, 0.8), 0.8 * rows(0))


def test_a_history_has_as_many_columns_as_are_propagated(graph: Graph) -> None:
    with pytest.raises(ConfigError, match="the history stores 3 columns, 2 are propagated; open it with `channels=2`"):
        lazy(None)(rows(0)[:, :2], Batch.full(graph, 1))


def test_a_response_is_fitted_to_a_matrix(graph: Graph) -> None:
    with pytest.raises(GraphError, match=r"`adj` .*Graph.*give the matrix of a graph, `graph.adj`"):
        fit_response(graph, ALPHA, 2)  # type: ignore[arg-type]


def test_a_step_on_labeled_rows_needs_labels(graph: Graph) -> None:
    for masks in ({}, {"train": torch.zeros(N, dtype=torch.bool)}):
        bare = Graph(graph.x, graph.y, graph.adj, graph.degree, graph.task, masks)
        with pytest.raises(GraphError, match="has no training nodes; give it labels"):
            Batch.full(bare, 1, label_step=True)
    with pytest.raises(ValueError, match="`further` must be at least 0, got -1"):
        fit_response(graph.adj, ALPHA, 2, further=-1)


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("further", [1, 2])
def test_a_fit_approximates_the_result_of_its_further_steps(graph: Graph, num_layers: int, further: int) -> None:
    """Compares with dense fits; without a beta, `before` would be the fixed point, which no step changes."""
    beta, level = 0.4, 0.9
    z = torch.linalg.eigvalsh(graph.adj.to_dense())
    before = standing(z, num_layers, beta)
    after = before
    for _ in range(further):
        after = (1 - ALPHA) * z * after + ALPHA
    coefficients = fit_response(graph.adj, ALPHA, num_layers, further=further, beta=beta, level=level).polynomial(ALPHA)

    def error(wanted: Tensor) -> float:
        """Returns the relative distance to the best fit of `wanted`, over all modes."""
        basis = torch.stack([(z - 1) * z**k for k in range(num_layers + further)], dim=1)
        best = level + basis @ torch.linalg.lstsq(basis, (wanted - level).unsqueeze(1)).solution.flatten()
        return float((sum(c * z**k for k, c in enumerate(coefficients)) - best).norm() / best.norm())

    assert error(after) < 0.02
    assert error(before) > 0.1


@pytest.mark.parametrize("response", [Response.plain(3), Response(0.6, (0.7, 1.2, 0.4)), Response(0.5, (0.7,), 1)])
def test_the_polynomial_of_the_high_pass_has_the_sign_of_every_product(graph: Graph, response: Response) -> None:
    adj, x = graph.adj.to_dense(), rows(0)
    expected = response.start * x
    for weight in response.sources:
        expected = alpha_step(-adj, expected, weight * x)
    torch.testing.assert_close(matrix_polynomial(response.polynomial(ALPHA, -1), adj, x), expected)
    # an odd power changes its sign, an even one does not
    low, high = response.polynomial(ALPHA), response.polynomial(ALPHA, -1)
    assert high == [(-1) ** power * coefficient for power, coefficient in enumerate(low)]


def alpha_step(adj: Tensor, x: Tensor, source: Tensor) -> Tensor:
    return (1 - ALPHA) * adj @ x + ALPHA * source


@pytest.mark.parametrize("further", [0, 1])
@pytest.mark.parametrize("beta", [0.0, 0.2])
def test_the_fit_of_the_high_pass_is_that_of_the_negative_matrix(graph: Graph, beta: float, further: int) -> None:
    options = {"further": further, "beta": beta, "level": 0.9}
    fitted = fit_response(graph.adj, ALPHA, 2, sign=-1, **options)  # type: ignore[arg-type]
    assert fitted == fit_response(negative(graph).adj, ALPHA, 2, **options)  # type: ignore[arg-type]
    assert fitted != fit_response(graph.adj, ALPHA, 2, **options)  # type: ignore[arg-type]
    # the level is that of the roughest input
    at_minus_one = sum((-1) ** power * c for power, c in enumerate(fitted.polynomial(ALPHA, -1)))
    assert at_minus_one == pytest.approx(0.9, abs=3e-3)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_the_steady_response_of_the_high_pass_is_in_closed_form(graph: Graph, beta: float) -> None:
    z, modes = torch.linalg.eigh(graph.adj.to_dense())
    x = rows(3)
    expected = modes @ (standing(-z, 2, beta).unsqueeze(1) * (modes.T @ x))
    found = steady_response(graph.adj, x, ALPHA, 2, beta, -1)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3 * float(x.abs().max()))
    if beta == 0:
        torch.testing.assert_close(expected, exact_solution(graph.adj, x, ALPHA, sign=-1))


def test_a_sign_that_is_neither_is_refused(graph: Graph) -> None:
    with pytest.raises(ValueError, match="`sign` must be 1 for the low-pass or -1 for the high-pass, got 2"):
        fit_response(graph.adj, ALPHA, 2, sign=2)
