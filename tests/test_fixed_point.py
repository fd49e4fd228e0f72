"""The fixed point to a tolerance, counted in products."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.data import load_graph
from lazygnn.errors import ConfigError
from lazygnn.fixed_point import Solver, num_products, solve
from lazygnn.graph import Graph
from lazygnn.models import LabelPropagation
from lazygnn.ops import Adjacency
from tests.helpers import exact_solution, random_graph, random_rows

SHARED = Path(__file__).parents[2] / "shared" / "data"


def path_of(num_nodes: int) -> Graph:
    at = np.arange(num_nodes - 1)
    return Graph.from_edges(np.stack((at, at + 1)), np.ones((num_nodes, 1)))


def star(num_leaves: int) -> Graph:
    edges = np.stack((np.zeros(num_leaves, dtype=int), np.arange(1, num_leaves + 1)))
    return Graph.from_edges(edges, np.ones((num_leaves + 1, 1)))


def bipartite_without_loops() -> Adjacency:
    """Returns a matrix with the eigenvalue -1, the hardest case of a normalized matrix."""
    graph = path_of(2).to(torch.float64).adj
    return graph.with_value(torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=torch.float64))


@cache
def graphs() -> dict[str, Adjacency]:
    found = {
        "path": path_of(300),
        "star": star(50),
        **{f"random {seed}": random_graph(200, 400, seed) for seed in range(3)},
    }
    adjs = {name: graph.to(torch.float64).adj for name, graph in found.items()}
    adjs["bipartite"] = bipartite_without_loops()
    if (SHARED / "cora.npz").is_file():
        adjs["cora"] = load_graph(SHARED / "cora.npz").to(torch.float64).adj
    return adjs


@pytest.mark.parametrize("solver", ["chebyshev", "power"])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6, 1e-10])
def test_error_stays_below_the_tolerance(solver: Solver, alpha: float, tolerance: float) -> None:
    check_error(solver, alpha, tolerance, sign=1)


@pytest.mark.parametrize("solver", ["chebyshev", "power"])
@pytest.mark.parametrize(("alpha", "tolerance"), [(0.1, 1e-6), (0.5, 1e-10), (1.0, 1e-2)])
def test_the_high_pass_has_the_same_bound(solver: Solver, alpha: float, tolerance: float) -> None:
    check_error(solver, alpha, tolerance, sign=-1)


def check_error(solver: Solver, alpha: float, tolerance: float, *, sign: int) -> None:
    for name, adj in graphs().items():
        if name == "cora":
            continue
        x = random_rows(len(adj), 4, 0)
        solution = solve(adj, x, alpha, tolerance=tolerance, solver=solver, sign=sign)
        error = float((solution.x - exact_solution(adj, x, alpha, sign=sign)).norm() / x.norm())
        assert error <= tolerance, name
        assert error <= solution.error * (1 + 1e-6) + 1e-14, name
        assert solution.num_products <= num_products(alpha, tolerance, solver)


@cache
def narrow_inputs(name: str) -> list[Tensor]:
    """Returns inputs in float32; with a smoothed one the solver stops where float32 makes no more progress."""
    adj = graphs()[name]
    rough = [random_rows(len(adj), 4, seed) for seed in range(3)]
    smooth = exact_solution(adj, torch.cat(rough, dim=1), 0.01).split(4, dim=1)
    return [x.float() for x in (*rough, *smooth)]


@cache
def exact_outputs(name: str, alpha: float) -> list[Tensor]:
    """Returns the fixed points of these inputs and the matrix in float32, in float64."""
    adj = graphs()[name].to(torch.float32).to(torch.float64)
    return list(exact_solution(adj, torch.cat(narrow_inputs(name), dim=1).double(), alpha).split(4, dim=1))


@pytest.mark.parametrize("solver", ["chebyshev", "power"])
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("tolerance", [1e-4, 1e-6, 1e-7])
def test_the_error_reported_holds_in_float32(solver: Solver, alpha: float, tolerance: float) -> None:
    """Rounding may exceed a small tolerance; the reported error includes it."""
    for name, adj in graphs().items():
        narrow = adj.to(torch.float32)
        for number, (x, expected) in enumerate(zip(narrow_inputs(name), exact_outputs(name, alpha), strict=True)):
            solution = solve(narrow, x, alpha, tolerance=tolerance, solver=solver)
            error = float((solution.x.double() - expected).norm() / x.double().norm())
            assert error <= solution.error, (name, number)


def test_chebyshev_needs_half_the_products_at_most_and_never_more_than_45() -> None:
    for name, adj in graphs().items():
        x = random_rows(len(adj), 8, 0)
        fast = solve(adj, x, 0.1, tolerance=1e-8)
        slow = solve(adj, x, 0.1, tolerance=1e-8, solver="power")
        assert float((fast.x - slow.x).norm() / x.norm()) <= 2e-8, name
        assert fast.num_products <= 45, name
        if name in ("path", "cora"):
            assert 2 * fast.num_products <= slow.num_products, name


def test_a_smooth_input_stops_early() -> None:
    adj = path_of(300).to(torch.float64).adj
    smooth = exact_solution(adj, torch.ones(300, 1, dtype=torch.float64), 0.001)
    assert solve(adj, smooth, 0.1, tolerance=1e-2).num_products < num_products(0.1, 1e-2)


def test_zero_input_is_solved_at_once() -> None:
    adj = path_of(5).adj
    assert torch.equal(solve(adj, torch.zeros(5, 2), 0.1).x, torch.zeros(5, 2))


def test_bad_values_are_named() -> None:
    adj, x = path_of(3).adj, torch.ones(3, 1)
    with pytest.raises(ValueError, match=r"`tolerance` must be in \(0, 1\), got 0"):
        solve(adj, x, 0.1, tolerance=0)
    with pytest.raises(ValueError, match=r"`alpha` must be in \(0, 1\], got 2"):
        solve(adj, x, 2)
    with pytest.raises(ValueError, match="`sign` must be 1 for the low-pass or -1 for the high-pass, got 0"):
        solve(adj, x, 0.1, sign=0)
    with pytest.raises(ValueError, match="`solver` must be `chebyshev` or `power`, got `magic`"):
        solve(adj, x, 0.1, solver="magic")  # type: ignore[arg-type]


@pytest.mark.parametrize("solver", ["chebyshev", "power"])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_the_tolerance_is_relative_to_the_input(solver: Solver, scale: float) -> None:
    adj = path_of(100).to(torch.float64).adj
    rough = random_rows(100, 2, 0)
    smooth = exact_solution(adj, rough, 0.001)
    for x in (rough, smooth):
        plain, scaled = (solve(adj, factor * x, 0.1, tolerance=1e-3, solver=solver) for factor in (1.0, scale))
        assert scaled.num_products == plain.num_products
        assert scaled.error == pytest.approx(plain.error, rel=1e-6)
        torch.testing.assert_close(scaled.x / scale, plain.x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("solver", ["chebyshev", "power"])
@pytest.mark.parametrize("scale", [1e-30, 1e-22, 1e22, 1e30])
def test_numbers_whose_squares_float32_cannot_hold_are_solved(solver: Solver, scale: float) -> None:
    adj, x = path_of(100).adj, random_rows(100, 2, 0, torch.float32)
    plain, scaled = (solve(adj, factor * x, 0.1, tolerance=1e-3, solver=solver) for factor in (1.0, scale))
    assert scaled.num_products == plain.num_products > 1
    torch.testing.assert_close(scaled.x / scale, plain.x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("solver", ["chebyshev", "power"])
def test_the_high_pass_is_the_low_pass_of_the_negative_matrix(solver: Solver) -> None:
    adj = path_of(100).to(torch.float64).adj
    x, negative = random_rows(100, 2, 0), adj.with_value(-adj.value)
    high = solve(adj, x, 0.1, tolerance=1e-8, solver=solver, sign=-1)
    low = solve(negative, x, 0.1, tolerance=1e-8, solver=solver)
    assert high.num_products == low.num_products
    torch.testing.assert_close(high.x, low.x, rtol=0, atol=1e-14)
    # what the one keeps of a smooth input, the other removes
    smooth = exact_solution(adj, x, 0.001)
    kept, removed = (solve(adj, smooth, 0.1, sign=sign).x for sign in (1, -1))
    assert float(kept.norm()) > 10 * float(removed.norm())


@pytest.mark.parametrize("solver", ["chebyshev", "power"])
@pytest.mark.parametrize("distance", [1e-6, 1e-3, 30.0])
def test_a_start_keeps_the_tolerance_and_a_near_one_saves_products(solver: Solver, distance: float) -> None:
    adj = path_of(100).to(torch.float64).adj
    x, tolerance = random_rows(100, 2, 0), 1e-4
    expected = exact_solution(adj, x, 0.1)
    start = expected + distance * random_rows(100, 2, 1)
    kept = start.clone()
    warm, cold = (solve(adj, x, 0.1, tolerance=tolerance, solver=solver, start=each) for each in (start, None))
    assert torch.equal(start, kept)
    for solution in (warm, cold):
        assert float((solution.x - expected).norm()) <= tolerance * float(x.norm())
        assert solution.error >= float((solution.x - expected).norm() / x.norm())
    assert (warm.num_products < cold.num_products) == (distance < 1)


def test_a_start_does_not_matter_for_an_input_of_zero_and_nan_ends() -> None:
    adj, zero = path_of(5).adj, torch.zeros(5, 2)
    assert torch.equal(solve(adj, zero, 0.1, start=torch.ones(5, 2)).x, zero)
    broken = solve(adj, torch.ones(5, 2), 0.1, start=torch.full((5, 2), torch.nan))
    assert bool(broken.x.isnan().all())


@pytest.mark.parametrize(
    "make",
    [
        lambda alpha: LabelPropagation(alpha),
        lambda alpha: CorrectAndSmooth(correct_alpha=alpha),
        lambda alpha: CorrectAndSmooth(smooth_alpha=alpha),
    ],
    ids=["label propagation", "correct", "smooth"],
)
def test_a_fixed_point_that_takes_too_many_products_is_refused_at_once(make: Callable[[float], object]) -> None:
    with pytest.raises(ConfigError, match=r"alpha` is 1e-12, .* takes \d+,\d+,\d+ products; give a larger one"):
        make(1e-12)
    make(1e-6)
