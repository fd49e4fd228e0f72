"""The equations, in float64, against dense solves and closed forms."""

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lazygnn.batch import Batch
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.history import History, NoHistory, Start, StoredHistory, open_history
from lazygnn.history.warmstart import WarmStart
from lazygnn.loader import ClusterLoader
from lazygnn.propagation import Drift, ExactPropagation, LazyPropagation, Mix, NoPropagation, diffuse

N, C, ALPHA = 40, 3, 0.1


def random_graph(seed: int = 0, num_nodes: int = N) -> Graph:
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, num_nodes, (2, 3 * num_nodes))
    edges = np.concatenate((edges, edges[::-1]), axis=1)
    y = rng.integers(0, C, num_nodes)
    train = np.arange(num_nodes) < num_nodes // 2
    return Graph.from_edges(edges, rng.normal(size=(num_nodes, 4)), y, train_mask=train).to(torch.float64)


def history(start: WarmStart) -> StoredHistory:
    return open_history(N, C, start, dtype=torch.float64, compute_dtype=torch.float64)


def lazy(start: WarmStart, gradient_start: WarmStart | None = None) -> LazyPropagation:
    gradients = None if gradient_start is None else history(gradient_start)
    return LazyPropagation(ALPHA, history(start), gradients)


def closed_form(graph: Graph) -> Tensor:
    """`alpha (I - (1 - alpha) A)^-1`, the solution operator of Eq. (1) and of its gradient, Eq. (10)."""
    identity = torch.eye(graph.num_nodes, dtype=torch.float64)
    inverse: Tensor = torch.linalg.inv(identity - (1 - ALPHA) * graph.adj.to_dense())
    return ALPHA * inverse


def gradient(prop: ExactPropagation | LazyPropagation, batch: Batch, x: Tensor, grad: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    prop(x, batch).backward(grad)
    assert x.grad is not None
    return x.grad


@pytest.fixture
def graph() -> Graph:
    return random_graph()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(N, C, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def grad() -> Tensor:
    return torch.randn(N, C, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_a_step_is_the_equation(graph: Graph, x: Tensor, grad: Tensor) -> None:
    dense = graph.adj.to_dense()
    expected = 0.9 * dense @ (0.9 * dense @ x + 0.1 * grad) + 0.1 * grad
    torch.testing.assert_close(diffuse([graph.adj] * 2, x, grad, ALPHA), expected, rtol=0, atol=1e-14)


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
        exact = exact_leaf
        for _ in range(num_layers):
            exact = (1 - ALPHA) * graph.adj.to_dense() @ exact + ALPHA * exact_leaf
        exact.backward(grad)
        torch.testing.assert_close(out, exact, rtol=0, atol=1e-12)
        torch.testing.assert_close(x_leaf.grad, exact_leaf.grad, rtol=0, atol=1e-12)


def test_exact_propagation_is_appnp(graph: Graph, x: Tensor, grad: Tensor) -> None:
    batch = Batch.full(graph, 10)
    prop, forgetful = ExactPropagation(ALPHA, 10), lazy(Mix(1.0), Mix(1.0))
    torch.testing.assert_close(prop(x, batch), forgetful(x, batch), rtol=0, atol=1e-15)
    torch.testing.assert_close(gradient(prop, batch, x, grad), gradient(forgetful, batch, x, grad), rtol=0, atol=1e-15)


@pytest.mark.parametrize("start", [Mix(0.0), Drift()])
def test_frozen_weights_turn_passes_into_steps(graph: Graph, x: Tensor, start: WarmStart) -> None:
    prop, batch = lazy(start), Batch.full(graph, 2)
    for passes in range(1, 8):
        out = prop(x, batch)
        expected = diffuse([graph.adj] * (2 * passes), x, x, ALPHA)
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", [Mix(0.0), Drift()])
def test_frozen_weights_converge_to_the_closed_forms(graph: Graph, x: Tensor, grad: Tensor, start: WarmStart) -> None:
    prop, batch, solution = lazy(start, start), Batch.full(graph, 2), closed_form(graph)
    for _ in range(120):
        got = gradient(prop, batch, x, grad)
    torch.testing.assert_close(prop(x, batch), solution @ x, rtol=0, atol=1e-10)
    torch.testing.assert_close(got, solution @ grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("start", [Mix(0.5), Drift(0.1)])
def test_a_mix_does_not_reach_the_fixed_point(graph: Graph, x: Tensor, start: WarmStart) -> None:
    prop, batch = lazy(start), Batch.full(graph, 2)
    for _ in range(200):
        out = prop(x, batch)
    torch.testing.assert_close(prop(x, batch), out, rtol=0, atol=1e-12)
    assert float((out - closed_form(graph) @ x).detach().norm()) > 1e-3


def test_drift_follows_a_moving_input_closer_than_a_mix(graph: Graph, x: Tensor, grad: Tensor) -> None:
    batch, solution = Batch.full(graph, 2), closed_form(graph)
    # the input keeps its smooth part and moves slowly
    smooth = solution @ x
    errors = {}
    for name, start in {"drift": Drift(), "mix": Mix(0.5)}.items():
        prop = lazy(start)
        for k in range(100):
            moving = smooth + 0.01 * k * solution @ grad
            out = prop(moving, batch)
        errors[name] = float((out - solution @ moving).detach().norm())
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
@pytest.mark.parametrize("kind", ["lazy", "exact"])
def test_nothing_is_saved_for_backward(graph: Graph, x: Tensor, num_layers: int, kind: str) -> None:
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    prop = lazy(Drift(0.1)) if kind == "lazy" else ExactPropagation(ALPHA, num_layers)
    batch = Batch.full(graph, num_layers)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = prop(x.clone().requires_grad_(), batch)
    assert saved == []
    # nor is a dense tensor kept alive by the node of the backward graph
    node = out.grad_fn
    held = [value for value in vars(node).values() if isinstance(value, Tensor)]
    assert held == []


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
    torch.testing.assert_close(prop.infer(x, graph.adj), closed_form(graph) @ x, rtol=0, atol=1e-8)
    prop.eval()
    torch.testing.assert_close(prop(x, Batch.full(graph, 2)), closed_form(graph) @ x, rtol=0, atol=1e-8)
    steps = LazyPropagation(ALPHA, poisoned, eval_layers=7)
    torch.testing.assert_close(steps.infer(x, graph.adj), diffuse([graph.adj] * 7, x, x, ALPHA))


def test_no_propagation_leaves_the_graph_out(graph: Graph, x: Tensor) -> None:
    prop = NoPropagation()
    assert torch.equal(prop(x, Batch.full(graph, 0)), x)
    assert torch.equal(prop.infer(x, graph.adj), x)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.5])
def test_alpha_must_lie_in_its_range(alpha: float) -> None:
    with pytest.raises(ValueError, match=rf"`alpha` must lie in \(0, 1\], got {alpha}"):
        ExactPropagation(alpha, 2)


def test_exact_propagation_refuses_a_part_of_the_graph(graph: Graph, x: Tensor) -> None:
    batch = Batch.full(graph, 1)
    cut = Batch(batch.x, batch.y, batch.weight, batch.nodes, N, [graph.adj, graph.adj.rows(10)])
    with pytest.raises(ValueError, match=r"needs the whole graph in a batch; build it with `Batch\.full`"):
        ExactPropagation(ALPHA, 2)(x, cut)


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
    other = random_graph(seed=1, num_nodes=12)
    prop = LazyPropagation(ALPHA, history(Drift()), eval_tolerance=1e-10).eval()
    expected = closed_form(other) @ x[:12]
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
def test_memory_of_a_pass_does_not_grow_with_its_steps(gradients: WarmStart | None) -> None:
    graph = random_graph(num_nodes=N)
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
    x_0 = (1 - mix) * (stored + leaf - x) + mix * leaf
    for _ in range(2):
        x_0 = (1 - ALPHA) * dense @ x_0 + ALPHA * leaf
    x_0.backward(grad)
    assert leaf.grad is not None
    torch.testing.assert_close(gradient(prop, batch, moved, grad), leaf.grad, rtol=0, atol=1e-13)
