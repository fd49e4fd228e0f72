"""One more step on labeled rows, against dense polynomials."""

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch, Labeled
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.history.codec import Codec
from lazygnn.history.device import DeviceStore
from lazygnn.loader import FullLoader
from lazygnn.ops import replaying
from lazygnn.propagation import Drift, LazyPropagation, Mix, diffuse, label_step
from lazygnn.propagation.response import Response, fit_response
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


@pytest.fixture
def labeled_graph(graph: Graph) -> Graph:
    train = torch.arange(N) % 3 == 0
    return Graph(graph.x, graph.y, graph.adj, graph.degree, graph.task, {"train": train})


@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_a_step_on_labeled_rows_is_the_last_one_of_the_polynomial(
    labeled_graph: Graph, num_layers: int, beta: float
) -> None:
    adj, train = labeled_graph.adj.to_dense(), labeled_graph.masks["train"]
    response = fit_response(labeled_graph.adj, ALPHA, num_layers, further=1, beta=beta)
    prop, batch = lazy(response, beta), Batch.full(labeled_graph, num_layers, label_step=True)
    before, after = rows(0), rows(1)
    prop(before, batch)
    assert isinstance(prop.features, StoredHistory)
    stored = prop.features.values.parts["rows"].clone()
    out = prop(after, batch)
    kept = prop.features.values.parts["rows"]
    # what is kept has not taken the step, and neither have rows without a label
    torch.testing.assert_close(out[~train], kept[~train], rtol=0, atol=0)
    expected = dense_steps(adj, torch.lerp(stored, before, beta), before, ALPHA, num_layers + 1)
    expected = expected + matrix_polynomial(response.polynomial(ALPHA), adj, after - before)
    torch.testing.assert_close(out[train], expected[train], rtol=0, atol=1e-12)
    for _ in range(400):
        out = prop(after, batch)
    if beta == 0:
        torch.testing.assert_close(out, exact_solution(labeled_graph.adj, after, ALPHA), rtol=0, atol=1e-12)


class SlowStore(DeviceStore):
    """Takes what was written when it is asked for it."""

    copies_at_once = False

    def write(self, rows: Tensor, values: Tensor) -> None:
        self.late = rows, values

    def flush(self) -> None:
        super().write(*self.late)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("num_layers", [0, 2])
def test_what_is_stored_and_what_came_in_lack_the_step_on_labeled_rows(
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
    torch.testing.assert_close(leaf.grad, matrix_polynomial(response.polynomial(ALPHA), adj, grad), rtol=0, atol=1e-12)


def test_a_loss_on_rows_that_have_not_taken_the_step_is_refused(labeled_graph: Graph) -> None:
    prop, batch = lazy(None), Batch.full(labeled_graph, 1, label_step=True)
    train = labeled_graph.masks["train"].unsqueeze(1)
    for _ in range(2):
        prop(rows(0).requires_grad_(), batch).backward(rows(1) * train)
        with pytest.raises(ConfigError, match="a gradient outside the training nodes; pass `label_step=False`"):
            prop(rows(0).requires_grad_(), batch).backward(rows(1))


def test_plain_steps_take_a_step_on_labeled_rows_too(labeled_graph: Graph) -> None:
    adj, train, x = labeled_graph.adj.to_dense(), labeled_graph.masks["train"], rows(0).requires_grad_()
    out = lazy(None)(x, Batch.full(labeled_graph, 1, label_step=True))
    grad = rows(5) * train.unsqueeze(1)
    out.backward(grad)
    twice = matrix_polynomial(Response.plain(2).polynomial(ALPHA), adj, x.detach())
    torch.testing.assert_close(out[train], twice[train], rtol=0, atol=1e-12)
    assert x.grad is not None
    torch.testing.assert_close(
        x.grad, matrix_polynomial(Response.plain(2).polynomial(ALPHA), adj, grad), rtol=0, atol=1e-12
    )


def test_a_step_on_labeled_rows_keeps_no_gradient(labeled_graph: Graph) -> None:
    features, gradients = (open_float64(N, C, Mix(0.5)) for _ in range(2))
    prop, batch = LazyPropagation(ALPHA, features, gradients), Batch.full(labeled_graph, 1, label_step=True)
    with pytest.raises(ConfigError, match="with `label_step=False`, or store no gradients: `gradients=None`"):
        prop(rows(0).requires_grad_(), batch)
    assert int(features.num_pushes) == 0
    assert repr(batch).endswith(", label_step=True)")


def test_a_response_counts_the_step_on_labeled_rows(labeled_graph: Graph) -> None:
    prop = lazy(fit_response(labeled_graph.adj, ALPHA, 1))
    with pytest.raises(ConfigError, match=r"takes 1 and 1; call `fit\(adj, num_layers=1, label_step=True\)`"):
        prop(rows(0), Batch.full(labeled_graph, 1, label_step=True))


def check_gradient(grad: Tensor, labeled: Labeled, graph: Graph) -> Tensor:
    return label_step.backward(grad, labeled, [graph.adj], [1.0, 0.0, 0.0])


def test_the_gradient_of_a_constant_loss_is_checked_once(labeled_graph: Graph) -> None:
    labeled = FullLoader(labeled_graph, 1, label_step=True).batch.labeled
    assert labeled is not None
    elsewhere = torch.ones(N, 2, dtype=torch.float64)
    with pytest.raises(ConfigError, match="pass `label_step=False`"):
        check_gradient(elsewhere, labeled, labeled_graph)
    check_gradient(torch.zeros_like(elsewhere), labeled, labeled_graph)
    expected = elsewhere * labeled_graph.masks["train"].unsqueeze(1)
    torch.testing.assert_close(check_gradient(elsewhere, labeled, labeled_graph), expected)


def test_the_gradient_of_a_replayed_step_is_checked_once_wherever_the_batch_goes(labeled_graph: Graph) -> None:
    labeled = Batch.full(labeled_graph, 1, label_step=True).labeled
    assert labeled is not None
    elsewhere = torch.ones(N, 2, dtype=torch.float64)
    with pytest.raises(ConfigError, match="a gradient outside the training nodes; pass `label_step=False`"):
        check_gradient(elsewhere, labeled, labeled_graph)
    with replaying():
        with pytest.raises(ConfigError, match="pass `label_step=False`"):
            check_gradient(elsewhere, labeled, labeled_graph)
        check_gradient(torch.zeros_like(elsewhere), labeled.map(lambda part: part), labeled_graph)
        check_gradient(elsewhere, labeled, labeled_graph)
    with pytest.raises(ConfigError, match="pass `label_step=False`"):
        check_gradient(elsewhere, labeled, labeled_graph)


@pytest.mark.parametrize("fitted", [False, True], ids=["plain", "fitted"])
def test_the_high_pass_takes_a_step_on_labeled_rows_too(labeled_graph: Graph, fitted: bool) -> None:
    results, train = [], labeled_graph.masks["train"].unsqueeze(1)
    for sign, used in ((-1, labeled_graph), (1, negative(labeled_graph))):
        prop = LazyPropagation(ALPHA, open_float64(N, C, Drift(0.1)), sign=sign)
        if fitted:
            prop.fit(used.adj, 2, label_step=True)
        for seed in range(3):
            leaf = rows(seed).requires_grad_()
            out = prop(leaf, Batch.full(used, 2, label_step=True))
            out.backward(rows(5) * train)
            results.append((out.detach(), leaf.grad))
    for high, low in zip(results[:3], results[3:], strict=True):
        torch.testing.assert_close(high, low, rtol=0, atol=1e-12)
