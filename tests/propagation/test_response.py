"""The response of a pass to a change of its input, against dense polynomials and the exact solution."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.history import NoHistory, StoredHistory, open_history
from lazygnn.history.codec import Codec
from lazygnn.history.device import DeviceStore
from lazygnn.history.warmstart import Drift, Mix, WarmStart
from lazygnn.loader import ClusterLoader
from lazygnn.propagation import LazyPropagation, diffuse
from lazygnn.propagation.response import Response, fit_response, standing_answer

ALPHA = 0.1
N, C = 40, 3


@pytest.fixture
def graph() -> Graph:
    rng = np.random.default_rng(0)
    made = Graph.from_edges(
        rng.integers(0, N, (2, 90)), np.ones((N, 2)), rng.integers(0, 2, N), train_mask=np.ones(N, bool)
    )
    return Graph(made.x, made.y, made.adj.to(torch.float64), made.degree, made.task, made.masks)


def rows(seed: int, num_rows: int = N) -> Tensor:
    return torch.randn(num_rows, C, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def lazy(response: Response | None, mix: float = 0.0) -> LazyPropagation:
    features = open_history(N, C, Drift(mix), dtype=torch.float64, compute_dtype=torch.float64)
    return LazyPropagation(ALPHA, features, response=response)


def polynomial(coefficients: list[float], adj: Tensor, x: Tensor) -> Tensor:
    out, power = torch.zeros_like(x), x
    for coefficient in coefficients:
        out, power = out + coefficient * power, adj @ power
    return out


def solution(graph: Graph, x: Tensor) -> Tensor:
    system = torch.eye(N, dtype=x.dtype) - (1 - ALPHA) * graph.adj.to_dense()
    solved: Tensor = torch.linalg.solve(system, ALPHA * x)
    return solved


@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_the_plain_response_is_that_of_plain_steps(graph: Graph, num_layers: int) -> None:
    plain, x = Response.plain(num_layers), rows(0)
    expected = x
    for _ in range(num_layers):
        expected = (1 - ALPHA) * graph.adj.to_dense() @ expected + ALPHA * x
    torch.testing.assert_close(polynomial(plain.polynomial(ALPHA), graph.adj.to_dense(), x), expected)
    assert plain.is_plain
    batch = Batch.full(graph, num_layers)
    assert torch.equal(lazy(plain)(x, batch), lazy(None)(x, batch))


def standing(z: Tensor, num_layers: int, mix: float) -> Tensor:
    """Returns the limit of the factor of a mode, the fixed point of `h = kept (1 - mix) h + kept mix + steps`."""
    kept = ((1 - ALPHA) * z) ** num_layers
    steps = ALPHA * sum(((1 - ALPHA) * z) ** step for step in range(num_layers))
    return (steps + mix * kept) / (1 - (1 - mix) * kept)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("mix", [0.0, 0.1, 1.0])
def test_passes_with_a_constant_input_converge_to_the_closed_form(graph: Graph, num_layers: int, mix: float) -> None:
    z, modes = torch.linalg.eigh(graph.adj.to_dense())
    x = rows(3)
    expected = modes @ (standing(z, num_layers, mix).unsqueeze(1) * (modes.T @ x))
    found = standing_answer(graph.adj, x, ALPHA, num_layers, mix)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3 * float(x.abs().max()))
    if mix == 0:
        torch.testing.assert_close(expected, solution(graph, x))
    # the passes themselves converge to it
    prop, batch = lazy(fit_response(graph.adj, ALPHA, num_layers, mix=mix), mix), Batch.full(graph, num_layers)
    for _ in range(260):
        out = prop(x, batch)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)


def test_with_a_mix_of_a_tenth_two_steps_converge_close_to_ten_exact_ones() -> None:
    z = torch.linspace(-1, 1, 400, dtype=torch.float64)
    ten = ALPHA * sum(((1 - ALPHA) * z) ** step for step in range(10)) + ((1 - ALPHA) * z) ** 10
    assert float((standing(z, 2, 0.1) - ten).abs().max()) < 0.06
    assert float((standing(z, 2, 0.0) - ten).square().mean()) > 2 * float((standing(z, 2, 0.1) - ten).square().mean())


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("level", [1.0, 0.8])
@pytest.mark.parametrize("mix", [0.0, 0.2])
def test_the_fit_is_the_least_squares_one(graph: Graph, num_layers: int, level: float, mix: float) -> None:
    """Compares with a dense fit in the eigenvalues; random inputs give all modes nearly the same weight."""
    z = torch.linalg.eigvalsh(graph.adj.to_dense())
    wanted = standing(z, num_layers, mix)
    fitted = fit_response(graph.adj, ALPHA, num_layers, mix=mix, level=level)
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
def test_a_fit_without_a_level_uses_the_default(graph: Graph, further: int, level: float) -> None:
    open_, held = (fit_response(graph.adj, ALPHA, 2, further=further, level=value) for value in (None, level))
    assert open_ == held
    assert sum(open_.polynomial(ALPHA)) == pytest.approx(level, abs=2e-3)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("mix", [0.0, 0.3])
@pytest.mark.parametrize("label_step", [False, True])
def test_the_first_pass_is_the_polynomial_forward_and_backward(
    graph: Graph, num_layers: int, mix: float, label_step: bool
) -> None:
    response = fit_response(graph.adj, ALPHA, num_layers, further=int(label_step), mix=mix)
    batch, adj = Batch.full(graph, num_layers, label_step=label_step), graph.adj.to_dense()
    x, grad, weights = rows(0).requires_grad_(), rows(1), response.polynomial(ALPHA)
    out = lazy(response, mix)(x, batch)
    torch.testing.assert_close(out, polynomial(weights, adj, x.detach()), rtol=0, atol=1e-12)
    out.backward(grad)
    torch.testing.assert_close(x.grad, polynomial(weights, adj, grad), rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_layers", [1, 2, 4])
@pytest.mark.parametrize("mix", [0.0, 0.3])
def test_a_change_of_the_input_enters_by_the_polynomial(graph: Graph, num_layers: int, mix: float) -> None:
    response = fit_response(graph.adj, ALPHA, num_layers, mix=mix)
    prop, batch, adj = lazy(response, mix), Batch.full(graph, num_layers), graph.adj.to_dense()
    before, after = rows(0), rows(1)
    stored = prop(before, batch)
    expected = torch.lerp(stored, before, mix)
    for _ in range(num_layers):
        expected = (1 - ALPHA) * adj @ expected + ALPHA * before
    expected = expected + polynomial(response.polynomial(ALPHA), adj, after - before)
    torch.testing.assert_close(prop(after, batch), expected, rtol=0, atol=1e-12)


def test_passes_with_a_constant_input_converge_to_the_exact_solution(graph: Graph) -> None:
    prop, batch = lazy(fit_response(graph.adj, ALPHA, 2)), Batch.full(graph, 2)
    prop(rows(0), batch)
    for _ in range(200):
        out = prop(rows(1), batch)
    torch.testing.assert_close(out, solution(graph, rows(1)), rtol=0, atol=1e-12)


def test_backward_is_the_derivative_of_forward(graph: Graph) -> None:
    response = fit_response(graph.adj, ALPHA, 2)
    prop, batch, grad = lazy(response), Batch.full(graph, 2), rows(5)
    prop(rows(0), batch)
    leaf = rows(1).requires_grad_()
    prop(leaf, batch).backward(grad)
    assert leaf.grad is not None
    expected = polynomial(response.polynomial(ALPHA), graph.adj.to_dense(), grad)
    torch.testing.assert_close(leaf.grad, expected, rtol=0, atol=1e-12)


def test_with_a_frozen_halo_every_part_converges_to_the_exact_solution(graph: Graph) -> None:
    prop, x = lazy(fit_response(graph.adj, ALPHA, 3)), rows(1)
    loader = ClusterLoader(graph, torch.tensor([0, 15, 40]), 3)
    for batch in loader.sweep():
        prop.fill(x[batch.targets], batch)
    for _ in range(150):
        for batch in loader:
            out = prop(x[batch.targets], batch)
            targets = batch.targets
    torch.testing.assert_close(out, solution(graph, x)[targets], rtol=0, atol=1e-10)


def test_values_that_cannot_be_fitted_are_refused(graph: Graph) -> None:
    for level in (0.0, 1.5):
        with pytest.raises(ValueError, match=rf"`level` must lie in \(0, 1\], got {level}"):
            fit_response(graph.adj, ALPHA, 2, level=level)
    with pytest.raises(ValueError, match=r"`mix` must lie in \[0, 1\], got 1.5"):
        fit_response(graph.adj, ALPHA, 2, mix=1.5)
    with pytest.raises(ValueError, match="`num_layers` must be at least 1, got 0"):
        fit_response(graph.adj, ALPHA, 0)
    assert fit_response(graph.adj, 1.0, 2).is_plain
    assert fit_response(graph.adj, ALPHA, 2, mix=1.0).is_plain


def test_arguments_of_a_wrong_type_are_named(graph: Graph) -> None:
    with pytest.raises(ConfigError, match="`response` is 'plain', of type str; give what `fit_response` returns"):
        LazyPropagation(ALPHA, NoHistory(), response="plain")  # type: ignore[arg-type]
    for name, value in (("features", None), ("gradients", 0.5)):
        values: dict[str, Any] = {"features": NoHistory(), name: value}
        with pytest.raises(ConfigError, match=rf"`{name}` is {value}, of type .*; open one with `open_history"):
            LazyPropagation(ALPHA, **values)
    with pytest.raises(ConfigError, match=r"`start` is 0.1, of type float; give `Drift\(\)` or `Mix\(weight\)`"):
        open_history(N, C, 0.1)  # type: ignore[arg-type]
    given: dict[str, Any] = {"alpha": ALPHA, "num_layers": 2}
    for name in ("alpha", "mix", "level"):
        with pytest.raises(ConfigError, match=f"`{name}` is '0.1', of type str; give a number"):
            fit_response(graph.adj, **(given | {name: "0.1"}))
    for name in ("num_layers", "further", "seed"):
        for value in (1.5, True):
            with pytest.raises(ConfigError, match=f"`{name}` is {value}, of type .*; give a whole number"):
                fit_response(graph.adj, **(given | {name: value}))


def test_a_response_must_fit_the_batch_and_the_history(graph: Graph) -> None:
    message = "a pass over this batch takes 3, none on labelled rows; fit it with `num_layers=3, further=0`"
    with pytest.raises(ConfigError, match=f"the response is for `num_layers=2, further=0`, {message}"):
        lazy(fit_response(graph.adj, ALPHA, 2))(rows(0), Batch.full(graph, 3))
    with pytest.raises(ConfigError, match=f"the response is for 2 steps, {message}"):
        lazy(Response.plain(2))(rows(0), Batch.full(graph, 3))
    mixing = open_history(N, C, Mix(0.5), dtype=torch.float64, compute_dtype=torch.float64)
    with pytest.raises(ValueError, match=r"needs a history that keeps inputs; Mix\(weight=0.5\) keeps none"):
        LazyPropagation(ALPHA, mixing, response=Response.plain(2))
    fitted = fit_response(graph.adj, ALPHA, 2, mix=0.1)
    with pytest.raises(ConfigError, match=r"fitted to `mix=0.1`, this propagation has 0; fit it .* mix=0\)`"):
        lazy(fitted)
    with pytest.raises(ConfigError, match=r"fitted to `alpha=0.1`, this propagation has 0.2; fit it with "):
        LazyPropagation(0.2, NoHistory(), response=fitted)
    # values that differ by rounding are equal
    assert LazyPropagation(float(torch.tensor(ALPHA)), NoHistory(), response=fitted).response is fitted
    with pytest.raises(ConfigError, match=r"is for `num_layers=2, further=0`, .* takes 1 and one on labelled rows"):
        lazy(fit_response(graph.adj, ALPHA, 2))(rows(0), Batch.full(graph, 1, label_step=True))
    with pytest.raises(ConfigError, match=r"is for `num_layers=1, further=1`, .* takes 2, none on labelled rows"):
        lazy(fit_response(graph.adj, ALPHA, 1, further=1))(rows(0), Batch.full(graph, 2))
    # a response that was not fitted is accepted by every pass
    lazy(Response(fitted.start, fitted.sources))
    assert Response(fitted.start, fitted.sources) == fitted == lazy(fitted, 0.1).response


@pytest.mark.parametrize("fitted", [False, True])
def test_gradients_kept_for_the_halo_carry_over_cut_edges(graph: Graph, fitted: bool) -> None:
    """With stored gradients, passes over the parts converge to the exact gradient; without them they do not."""
    grad, exact = rows(5), solution(graph, rows(5))
    errors = {}
    for kept in (False, True):
        features, gradients = (
            open_history(N, C, start, dtype=torch.float64, compute_dtype=torch.float64) for start in (Drift(), Mix(1.0))
        )
        response = fit_response(graph.adj, ALPHA, 20, level=1.0) if fitted else None
        prop = LazyPropagation(ALPHA, features, gradients if kept else None, response=response)
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
    # twenty plain steps keep a little of the start; the missing gradients of the halo are far more
    assert errors[True] < (0.2 if not fitted else 0.1)
    assert errors[False] > 3 * errors[True]


def test_a_mix_refuses_a_weight_of_the_change() -> None:
    with pytest.raises(ValueError, match=r"Mix\(weight=0.5\) keeps no inputs, so a change .* got 0.8"):
        Mix(0.5).targets(rows(0), rows(1), None, 0.8)
    assert torch.equal(Mix(1.0).targets(rows(0), rows(1), None, 0.8), 0.8 * rows(0))


@pytest.fixture
def labeled_graph(graph: Graph) -> Graph:
    train = torch.arange(N) % 3 == 0
    return Graph(graph.x, graph.y, graph.adj, graph.degree, graph.task, {"train": train})


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("mix", [0.0, 0.3])
def test_a_step_on_labeled_rows_is_the_last_one_of_the_polynomial(
    labeled_graph: Graph, num_layers: int, mix: float
) -> None:
    adj, train = labeled_graph.adj.to_dense(), labeled_graph.masks["train"]
    response = fit_response(labeled_graph.adj, ALPHA, num_layers, further=1, mix=mix)
    prop, batch = lazy(response, mix), Batch.full(labeled_graph, num_layers, label_step=True)
    before, after = rows(0), rows(1)
    prop(before, batch)
    assert isinstance(prop.features, StoredHistory)
    stored = prop.features.values.parts["rows"].clone()
    out = prop(after, batch)
    kept = prop.features.values.parts["rows"]
    # neither the stored rows nor those without a label have taken the step
    torch.testing.assert_close(out[~train], kept[~train], rtol=0, atol=0)
    expected = torch.lerp(stored, before, mix)
    for _ in range(num_layers + 1):
        expected = (1 - ALPHA) * adj @ expected + ALPHA * before
    expected = expected + polynomial(response.polynomial(ALPHA), adj, after - before)
    torch.testing.assert_close(out[train], expected[train], rtol=0, atol=1e-12)
    for _ in range(400):
        out = prop(after, batch)
    if mix == 0:
        torch.testing.assert_close(out, solution(labeled_graph, after), rtol=0, atol=1e-12)


class SlowStore(DeviceStore):
    """A store that writes when it is flushed."""

    copies_at_once = False

    def write(self, rows: Tensor, values: Tensor) -> None:
        self.late = rows, values

    def flush(self) -> None:
        super().write(*self.late)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("num_layers", [0, 2])
def test_stored_rows_and_the_input_lack_the_step_on_labeled_rows(
    labeled_graph: Graph, num_layers: int, slow: bool
) -> None:
    codec = Codec(torch.float64, torch.float64)
    parts = [{"rows": torch.zeros(N, C, dtype=torch.float64)} for _ in range(2)]
    kind = SlowStore if slow else DeviceStore
    values, inputs = (kind(part, codec, torch.device("cpu")) for part in parts)
    prop = LazyPropagation(ALPHA, StoredHistory(Drift(0.0), values, inputs))
    x = rows(0)
    out = prop(x, Batch.full(labeled_graph, num_layers, label_step=True))
    assert torch.equal(x, rows(0))
    kept, train = values.state()["rows"], labeled_graph.masks["train"]
    torch.testing.assert_close(kept, diffuse([labeled_graph.adj] * num_layers, x, x, ALPHA), rtol=0, atol=1e-12)
    further = diffuse([labeled_graph.adj], kept, x, ALPHA)
    torch.testing.assert_close(out, torch.where(train.unsqueeze(1), further, kept), rtol=0, atol=1e-12)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_gradient_of_labeled_rows_is_their_polynomial(labeled_graph: Graph, num_layers: int) -> None:
    adj, train = labeled_graph.adj.to_dense(), labeled_graph.masks["train"]
    response = fit_response(labeled_graph.adj, ALPHA, num_layers, further=1)
    prop, batch = lazy(response), Batch.full(labeled_graph, num_layers, label_step=True)
    grad, leaf = rows(5) * train.unsqueeze(1), rows(1).requires_grad_()
    prop(leaf, batch).backward(grad)
    assert leaf.grad is not None
    torch.testing.assert_close(leaf.grad, polynomial(response.polynomial(ALPHA), adj, grad), rtol=0, atol=1e-12)


def test_a_loss_on_rows_that_have_not_taken_the_step_is_refused(labeled_graph: Graph) -> None:
    prop, batch = lazy(None), Batch.full(labeled_graph, 1, label_step=True)
    train = labeled_graph.masks["train"].unsqueeze(1)
    for _ in range(2):
        prop(rows(0).requires_grad_(), batch).backward(rows(1) * train)
        with pytest.raises(ConfigError, match="looks at nodes that are not to train on; say `label_step=False`"):
            prop(rows(0).requires_grad_(), batch).backward(rows(1))


def test_plain_steps_take_a_step_on_labeled_rows_too(labeled_graph: Graph) -> None:
    adj, train, x = labeled_graph.adj.to_dense(), labeled_graph.masks["train"], rows(0).requires_grad_()
    out = lazy(None)(x, Batch.full(labeled_graph, 1, label_step=True))
    grad = rows(5) * train.unsqueeze(1)
    out.backward(grad)
    twice = polynomial(Response.plain(2).polynomial(ALPHA), adj, x.detach())
    torch.testing.assert_close(out[train], twice[train], rtol=0, atol=1e-12)
    assert x.grad is not None
    torch.testing.assert_close(x.grad, polynomial(Response.plain(2).polynomial(ALPHA), adj, grad), rtol=0, atol=1e-12)


def test_a_step_on_labeled_rows_keeps_no_gradient(labeled_graph: Graph) -> None:
    def store(start: WarmStart) -> StoredHistory:
        return open_history(N, C, start, dtype=torch.float64, compute_dtype=torch.float64)

    features = store(Mix(0.5))
    prop, batch = LazyPropagation(ALPHA, features, store(Mix(0.5))), Batch.full(labeled_graph, 1, label_step=True)
    with pytest.raises(ConfigError, match="make the batch with `label_step=False`, or keep none: `gradients=None`"):
        prop(rows(0).requires_grad_(), batch)
    assert int(features.num_pushes) == 0
    assert repr(batch).endswith(", label_step=True)")


def test_a_response_counts_the_step_on_labeled_rows(labeled_graph: Graph) -> None:
    prop = lazy(fit_response(labeled_graph.adj, ALPHA, 1))
    with pytest.raises(ConfigError, match="takes 1 and one on labelled rows; fit it with `num_layers=1, further=1`"):
        prop(rows(0), Batch.full(labeled_graph, 1, label_step=True))


def test_a_history_of_another_width_is_refused(graph: Graph) -> None:
    with pytest.raises(ConfigError, match="the history keeps 3 columns, 2 are propagated; open it with `channels=2`"):
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
    """Compares with dense fits; without a mix, `before` would be the fixed point, which no step changes."""
    mix, level = 0.4, 0.9
    z = torch.linalg.eigvalsh(graph.adj.to_dense())
    before = standing(z, num_layers, mix)
    after = before
    for _ in range(further):
        after = (1 - ALPHA) * z * after + ALPHA
    coefficients = fit_response(graph.adj, ALPHA, num_layers, further=further, mix=mix, level=level).polynomial(ALPHA)

    def error(wanted: Tensor) -> float:
        """Returns the relative distance to the best fit of `wanted`, over all modes."""
        basis = torch.stack([(z - 1) * z**k for k in range(num_layers + further)], dim=1)
        best = level + basis @ torch.linalg.lstsq(basis, (wanted - level).unsqueeze(1)).solution.flatten()
        return float((sum(c * z**k for k, c in enumerate(coefficients)) - best).norm() / best.norm())

    assert error(after) < 0.02
    assert error(before) > 0.1
