"""The equations of lazy propagation, in float64, against dense solves and closed forms."""

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lazygnn import ops
from lazygnn.batch import Batch
from lazygnn.errors import ConfigError, GraphError
from lazygnn.fixed_point import Solution, solve
from lazygnn.graph import Graph
from lazygnn.history import History, NoHistory, Start, StoredHistory
from lazygnn.history.warmstart import WarmStart
from lazygnn.loader import ClusterLoader
from lazygnn.propagation import Drift, LazyPropagation, Mix, Response, diffuse, estimating, solves
from lazygnn.propagation.base import ESTIMATE_TOLERANCE, WARM_TOLERANCE
from tests.helpers import dense_steps, exact_solution, open_float64, random_graph, random_rows
from tests.propagation.helpers import dense_views, gradient, negative, saved_for_backward

N, C, ALPHA = 40, 3, 0.1


def lazy(start: WarmStart, gradient_start: WarmStart | None = None) -> LazyPropagation:
    gradients = None if gradient_start is None else open_float64(N, C, gradient_start)
    return LazyPropagation(ALPHA, open_float64(N, C, start), gradients)


@pytest.fixture
def graph() -> Graph:
    return random_graph(N, 3 * N)


@pytest.fixture
def x() -> Tensor:
    return random_rows(N, C, 1)


@pytest.fixture
def grad() -> Tensor:
    return random_rows(N, C, 2)


@pytest.mark.parametrize("num_layers", [1, 2, 10])
def test_weights_of_one_are_appnp_forward_and_backward(graph: Graph, x: Tensor, grad: Tensor, num_layers: int) -> None:
    batch = Batch.full(graph, num_layers)
    prop = lazy(Mix(1.0), Mix(1.0))
    for _ in range(3):
        x_leaf = x.clone().requires_grad_()
        out = prop(x_leaf, batch)
        out.backward(grad)
        exact_leaf = x.clone().requires_grad_()
        # differentiated by autograd through the dense steps, an independent way
        exact = dense_steps(graph.adj.to_dense(), exact_leaf, exact_leaf, ALPHA, num_layers)
        exact.backward(grad)
        torch.testing.assert_close(out, exact, rtol=0, atol=1e-12)
        torch.testing.assert_close(x_leaf.grad, exact_leaf.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", [Mix(0.0), Drift()])
def test_frozen_weights_turn_passes_into_steps(graph: Graph, x: Tensor, start: WarmStart) -> None:
    prop, batch = lazy(start), Batch.full(graph, 2)
    for passes in range(1, 8):
        out = prop(x, batch)
        expected = diffuse([graph.adj] * (2 * passes), x, x, ALPHA)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", [Mix(0.0), Drift()])
def test_frozen_weights_converge_to_the_closed_forms(graph: Graph, x: Tensor, grad: Tensor, start: WarmStart) -> None:
    prop, batch = lazy(start, start), Batch.full(graph, 2)
    for _ in range(120):
        found = gradient(prop, batch, x, grad)
    torch.testing.assert_close(prop(x, batch), exact_solution(graph.adj, x, ALPHA), rtol=0, atol=1e-10)
    torch.testing.assert_close(found, exact_solution(graph.adj, grad, ALPHA), rtol=0, atol=1e-10)


@pytest.mark.parametrize("start", [Mix(0.5), Drift(0.1)])
def test_a_mix_does_not_reach_the_fixed_point(graph: Graph, x: Tensor, start: WarmStart) -> None:
    prop, batch = lazy(start), Batch.full(graph, 2)
    for _ in range(200):
        out = prop(x, batch)
    torch.testing.assert_close(prop(x, batch), out, rtol=0, atol=1e-12)
    assert float((out - exact_solution(graph.adj, x, ALPHA)).detach().norm()) > 1e-3


def test_drift_follows_a_moving_input_closer_than_a_mix(graph: Graph, x: Tensor, grad: Tensor) -> None:
    batch = Batch.full(graph, 2)
    # the input keeps its smooth part and moves slowly
    smooth, direction = (exact_solution(graph.adj, value, ALPHA) for value in (x, grad))
    errors = {}
    for name, start in {"drift": Drift(), "mix": Mix(0.5)}.items():
        prop = lazy(start)
        for k in range(100):
            moving = smooth + 0.01 * k * direction
            out = prop(moving, batch)
        errors[name] = float((out - exact_solution(graph.adj, moving, ALPHA)).detach().norm())
    assert errors["drift"] < 0.2 * errors["mix"]


def test_the_papers_equations_step_by_step(graph: Graph, x: Tensor, grad: Tensor) -> None:
    """Eqs. (5)-(7) and (13)-(14), two iterations written out by hand."""
    beta, gamma, dense = 0.3, 0.6, graph.adj.to_dense()
    prop, batch = lazy(Mix(beta), Mix(gamma)), Batch.full(graph, 1)
    x_l, g_in = None, None
    for k in range(3):
        x_in, dldx = x * (1 + k), grad * (2 - k)
        x_0 = x_in if x_l is None else (1 - beta) * x_l + beta * x_in
        x_l = (1 - ALPHA) * dense @ x_0 + ALPHA * x_in
        g_l = dldx if g_in is None else (1 - gamma) * g_in + gamma * dldx
        g_in = (1 - ALPHA) * dense @ g_l + ALPHA * dldx
        leaf = x_in.clone().requires_grad_()
        out = prop(leaf, batch)
        out.backward(dldx)
        torch.testing.assert_close(out, x_l, rtol=0, atol=1e-13)
        torch.testing.assert_close(leaf.grad, g_in, rtol=0, atol=1e-13)


@pytest.mark.parametrize("num_layers", [1, 2, 8, 32])
def test_nothing_is_saved_for_backward(graph: Graph, x: Tensor, num_layers: int) -> None:
    assert saved_for_backward(lazy(Drift(0.1)), Batch.full(graph, num_layers), x) == []


def test_permuting_the_nodes_permutes_the_result(x: Tensor, grad: Tensor) -> None:
    rng = np.random.default_rng(3)
    edges, perm = rng.integers(0, N, (2, 100)), rng.permutation(N)
    edges = np.concatenate((edges, edges[::-1]), axis=1)
    inverse = np.argsort(perm)
    train = np.arange(N) < 10
    y = np.zeros(N, dtype=np.int64)
    plain = Graph.from_edges(edges, np.ones((N, 1)), y, train_mask=train).to(torch.float64)
    moved = Graph.from_edges(inverse[edges], np.ones((N, 1)), y, train_mask=train).to(torch.float64)
    order = torch.from_numpy(perm)
    one, other = lazy(Drift(0.1), Mix(0.5)), lazy(Drift(0.1), Mix(0.5))
    for k in range(4):
        first = gradient(one, Batch.full(plain, 2), x * (k + 1), grad)
        second = gradient(other, Batch.full(moved, 2), (x * (k + 1))[order], grad[order])
        torch.testing.assert_close(first[order], second, rtol=0, atol=1e-13)
    torch.testing.assert_close(one(x, Batch.full(plain, 2))[order], other(x[order], Batch.full(moved, 2)))


def test_evaluation_reads_no_history_and_solves_for_the_fixed_point(graph: Graph, x: Tensor) -> None:
    class Poisoned(NoHistory):
        def start(
            self, nodes: Tensor, num_targets: int, fresh: Tensor, change: float = 1.0, *, with_previous: bool = True
        ) -> Start:
            raise AssertionError("evaluation looked into a history")

    poisoned: History = Poisoned()
    prop = LazyPropagation(ALPHA, poisoned, eval_tolerance=1e-10)
    expected = exact_solution(graph.adj, x, ALPHA)
    torch.testing.assert_close(prop.infer(x, graph.adj), expected, rtol=0, atol=1e-8)
    prop.eval()
    torch.testing.assert_close(prop(x, Batch.full(graph, 2)), expected, rtol=0, atol=1e-8)
    steps = LazyPropagation(ALPHA, poisoned, eval_layers=7)
    torch.testing.assert_close(steps.infer(x, graph.adj), diffuse([graph.adj] * 7, x, x, ALPHA))


@pytest.mark.parametrize("start", [Mix(0.5), Drift()], ids=str)
def test_an_estimate_starts_from_the_stored_solution(
    monkeypatch: pytest.MonkeyPatch, graph: Graph, x: Tensor, start: WarmStart
) -> None:
    starts: list[Tensor | None] = []

    def watched(*args: Any, **options: Any) -> Solution:
        starts.append(options["start"])
        return solve(*args, **options)

    monkeypatch.setattr("lazygnn.propagation.base.solve", watched)
    prop, expected = lazy(start), exact_solution(graph.adj, x, ALPHA)
    # a history that is not complete has no solution
    with estimating(prop):
        assert float((prop.infer(x, graph.adj) - expected).norm()) <= ESTIMATE_TOLERANCE * float(x.norm())
    before = x + 0.1 * random_rows(N, C, 5)
    stored = exact_solution(graph.adj, before, ALPHA)
    prop.features.push(torch.arange(N), stored, before)
    with estimating(prop):
        found = prop.infer(x.clone(), graph.adj, in_place=True)
    # after a plain step with the new input
    near = ops.step(graph.adj, stored + x - before, x, ALPHA) if start.stores_inputs else stored
    assert starts[0] is None
    assert starts[1] is not None
    torch.testing.assert_close(starts[1], near, rtol=0, atol=1e-12)
    assert float((found - expected).norm()) <= WARM_TOLERANCE * float(x.norm())
    assert not torch.allclose(found, expected, rtol=0, atol=1e-4)
    # outside the context, and for a graph of another size, no history is read
    other = random_graph(12, 36, seed=1)
    torch.testing.assert_close(prop.infer(x, graph.adj), expected, rtol=0, atol=1e-3)
    with estimating(prop):
        prop.infer(x[:12], other.adj)
    assert starts[2:] == [None, None]


def test_an_estimate_starts_from_a_fitted_pass_that_stores_nothing(
    monkeypatch: pytest.MonkeyPatch, graph: Graph, x: Tensor
) -> None:
    starts: list[Tensor] = []

    def watched(*args: Any, **options: Any) -> Solution:
        starts.append(options["start"])
        return solve(*args, **options)

    monkeypatch.setattr("lazygnn.propagation.base.solve", watched)
    batch, nodes = Batch.full(graph, 2), torch.arange(N)
    prop = lazy(Drift(0.1)).fit(graph.adj, 2)
    before = x + 0.1 * random_rows(N, C, 5)
    stored = exact_solution(graph.adj, before, ALPHA)
    prop.features.push(nodes, stored, before)
    with estimating(prop):
        prop.infer(x, graph.adj)
    assert isinstance(prop.features, StoredHistory)
    torch.testing.assert_close(prop.features.values.read(nodes), stored, rtol=0, atol=0)
    torch.testing.assert_close(starts[0], prop(x, batch), rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", [Mix(0.5), Drift()], ids=str)
@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in place"])
def test_an_estimate_copies_no_history_and_changes_none(
    graph: Graph, x: Tensor, start: WarmStart, in_place: bool
) -> None:
    prop, nodes = lazy(start), torch.arange(N)
    stored = exact_solution(graph.adj, x, ALPHA)
    prop.features.push(nodes, stored, x)
    assert isinstance(prop.features, StoredHistory)
    tables = [store.parts["rows"] for store in prop.features.stores.values()]
    assert [each.data_ptr() for each in prop.stored_rows(x)] == [table.data_ptr() for table in tables]
    # the start solves it already, so that it may be returned as it is
    with estimating(prop):
        prop.infer(x.clone(), graph.adj, in_place=in_place).fill_(7)
    assert torch.equal(prop.features.values.read(nodes), stored)
    if prop.features.inputs is not None:
        assert torch.equal(prop.features.inputs.read(nodes), x)


def test_an_estimate_of_steps_is_exact(graph: Graph, x: Tensor) -> None:
    prop = LazyPropagation(ALPHA, open_float64(N, C, Drift()), eval_layers=7)
    prop.fill(x, Batch.full(graph, 2))
    assert not solves(prop)
    assert solves(lazy(Drift()))
    with estimating(prop):
        assert torch.equal(prop.infer(x, graph.adj), diffuse([graph.adj] * 7, x, x, ALPHA))


def test_evaluation_of_a_part_says_what_to_do(graph: Graph, x: Tensor) -> None:
    full = Batch.full(graph, 1)
    cut = Batch(full.x, full.y, full.weight, full.nodes, 10, [graph.adj.rows(10)])
    with pytest.raises(ValueError, match=r"use `model\.infer\(graph\)` or `Batch\.full`"):
        lazy(Drift()).eval()(x, cut)


def test_a_part_without_a_halo_is_not_taken_for_the_whole_graph(graph: Graph, x: Tensor) -> None:
    loader = ClusterLoader(graph, torch.tensor([0, 25, N]), 2, halo="none")
    prop = lazy(Drift())
    for batch in loader.sweep():
        assert batch.adjs[0].num_rows == batch.adjs[0].num_cols
        part = x[batch.targets]
        assert prop.train()(part, batch).shape == part.shape
        with pytest.raises(ValueError, match=r"use `model\.infer\(graph\)` or `Batch\.full`"):
            prop.eval()(part, batch)


def test_a_graph_of_another_size_is_evaluated_as_a_whole(x: Tensor) -> None:
    other = random_graph(12, 36, seed=1)
    prop = LazyPropagation(ALPHA, open_float64(N, C, Drift()), eval_tolerance=1e-10).eval()
    expected = exact_solution(other.adj, x[:12], ALPHA)
    torch.testing.assert_close(prop(x[:12], Batch.full(other, 2)), expected, rtol=0, atol=1e-8)


def test_edges_in_the_place_of_a_batch_are_refused_with_the_way_to_make_one(graph: Graph, x: Tensor) -> None:
    with pytest.raises(
        GraphError, match=r"`batch` is of type Tensor and shape \(2, 7\); make a batch with `Batch\.full"
    ):
        lazy(Drift())(x, torch.zeros(2, 7))
    with pytest.raises(
        GraphError, match=r"`batch` is of type Graph; make a batch with `Batch\.full\(graph, num_layers\)`"
    ):
        lazy(Drift())(x, graph)


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of tensors that operations made and that still live, and the most there ever were."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor) and tensor.layout == torch.strided:
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        address, num_bytes = storage.data_ptr(), storage.nbytes()
        if address in self.seen:
            return
        self.seen.add(address)
        self.live += num_bytes
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, address, num_bytes)

    def _forget(self, address: int, num_bytes: int) -> None:
        self.seen.discard(address)
        self.live -= num_bytes


@pytest.mark.parametrize("gradients", [None, Drift(0.1)])
def test_memory_of_a_pass_does_not_grow_with_its_steps(graph: Graph, gradients: WarmStart | None) -> None:
    peaks = []
    for num_layers in (1, 2, 8, 32):
        prop, batch = lazy(Drift(0.1), gradients), Batch.full(graph, num_layers)
        x = torch.ones(N, C, dtype=torch.float64)
        prop(x, batch)
        leaf = x.clone().requires_grad_()
        with PeakMemory() as memory:
            prop(leaf, batch).sum().backward()
        peaks.append(memory.peak)
    assert peaks[0] > 0
    assert peaks[1] == peaks[2] == peaks[3]
    # the second step adds the buffer that later ones use in turn
    assert peaks[1] - peaks[0] <= N * C * 8


@pytest.mark.parametrize("mix", [0.0, 0.1, 0.7])
def test_after_a_drift_the_backward_steps_are_the_exact_derivative(
    graph: Graph, x: Tensor, grad: Tensor, mix: float
) -> None:
    """`x_0 = stored + (x_in - then)` moves with `x_in` one to one, so the steps differentiate to plain steps."""
    prop, batch, dense = lazy(Drift(mix)), Batch.full(graph, 2), graph.adj.to_dense()
    prop(x, batch)
    moved = x + grad
    stored = diffuse([graph.adj] * 2, x, x, ALPHA)
    leaf = moved.clone().requires_grad_()
    start = (1 - mix) * (stored + leaf - x) + mix * leaf
    dense_steps(dense, start, leaf, ALPHA, 2).backward(grad)
    assert leaf.grad is not None
    torch.testing.assert_close(gradient(prop, batch, moved, grad), leaf.grad, rtol=0, atol=1e-13)


@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
@pytest.mark.parametrize("gradient_start", [None, Mix(0.4)], ids=["no gradients", "gradients"])
def test_the_high_pass_is_the_low_pass_of_the_negative_matrix(
    graph: Graph, x: Tensor, grad: Tensor, gradient_start: WarmStart | None, fitted: bool
) -> None:
    if fitted:
        gradient_start = None if gradient_start is None else Drift(0.4)
    results = []
    for sign, used in ((-1, graph), (1, negative(graph))):
        gradients = None if gradient_start is None else open_float64(N, C, gradient_start)
        prop = LazyPropagation(ALPHA, open_float64(N, C, Drift(0.1)), gradients, sign=sign)
        if fitted:
            prop.fit(used.adj, 2)
        batch = Batch.full(used, 2)
        found = [gradient(prop, batch, factor * x, grad) for factor in (1, 3, 2)]
        results.append([*found, prop(x, batch), prop.eval()(x, batch)])
    for high, low in zip(*results, strict=True):
        torch.testing.assert_close(high, low, rtol=0, atol=1e-12)


def test_the_high_pass_converges_to_its_closed_forms(graph: Graph, x: Tensor, grad: Tensor) -> None:
    gradients = open_float64(N, C, Drift())
    prop = LazyPropagation(ALPHA, open_float64(N, C, Drift()), gradients, sign=-1).fit(graph.adj, 2)
    for _ in range(120):
        found = gradient(prop, Batch.full(graph, 2), x, grad)
    out, expected = prop(x, Batch.full(graph, 2)), exact_solution(graph.adj, x, ALPHA, sign=-1)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(found, exact_solution(graph.adj, grad, ALPHA, sign=-1), rtol=0, atol=1e-10)
    prop.eval_tolerance = 1e-10
    torch.testing.assert_close(prop.eval()(x, Batch.full(graph, 2)), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
def test_views_are_those_of_its_response_and_sign(
    graph: Graph, x: Tensor, grad: Tensor, sign: int, fitted: bool
) -> None:
    history, stored = open_float64(N, C, Drift(0.2), halo_inputs=True), (grad, grad.flip(0))
    history.push(torch.arange(N), *stored)
    prop = LazyPropagation(ALPHA, history, eval_tolerance=1e-10, sign=sign)
    if fitted:
        prop.fit(graph.adj, 2)
    batch = next(iter(ClusterLoader(graph, torch.tensor([0, 15, N]), 2).sweep()))
    response = prop.response or Response.plain(2)
    expected = dense_views(
        graph.adj.to_dense(), batch.targets, x[:15], stored, response, alpha=ALPHA, beta=0.2, sign=sign
    )
    for view, dense in zip(prop.views(x[:15], batch), expected, strict=True):
        torch.testing.assert_close(view, dense, rtol=0, atol=1e-12)
    near, far = prop.eval().views(x, Batch.full(graph, 2))
    torch.testing.assert_close(near, graph.adj.to_dense() @ x, rtol=0, atol=1e-12)
    torch.testing.assert_close(far, exact_solution(graph.adj, x, ALPHA, sign=sign), rtol=0, atol=1e-8)
    with pytest.raises(ValueError, match=r"use `model\.infer\(graph\)` or `Batch\.full`"):
        prop.views(x[:15], batch)


def test_views_check_batch_and_history(graph: Graph, x: Tensor) -> None:
    prop = lazy(Drift())
    with pytest.raises(GraphError, match="`batch` is of type Graph; make a batch with"):
        prop.views(x, graph)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the history stores 3 columns, 2 are propagated; open it with `channels=2`"):
        prop.views(x[:, :2], Batch.full(graph, 1))
    prop.fit(graph.adj, 2)
    with pytest.raises(ConfigError, match="the response is fitted to 2 steps and 0 on labeled rows"):
        prop.views(x, Batch.full(graph, 3))
