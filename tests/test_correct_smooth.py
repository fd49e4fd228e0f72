"""Correct and Smooth against dense solves, closed forms and PyG."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn import inference
from lazygnn.correct_smooth import CorrectAndSmooth, to_logits
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.task import Task
from tests.helpers import exact_solution, needs_cuda, random_graph, random_rows

# typed as `Any`, so that the calls below can be wrong on purpose
WRONG: Any = "wrong"
MANY = Task("multi-label", 4)


def split_graph(seed: int = 0) -> Graph:
    """Returns a graph in float64 with three classes, where every third node is a training node."""
    graph = random_graph(60, 150, seed)
    node = torch.arange(60)
    return replace(graph, masks={"train": node % 3 == 0, "val": node % 3 == 1, "test": node % 3 == 2})


def many_labels(graph: Graph) -> Graph:
    return replace(graph, y=(random_rows(graph.num_nodes, 4, 7) > 0.5).float(), task=MANY)


def guesses(graph: Graph, seed: int = 3) -> Tensor:
    """Returns random probabilities."""
    return graph.task.activate(2 * random_rows(graph.num_nodes, graph.task.num_outputs, seed))


def labels(graph: Graph) -> Tensor:
    return graph.y.double() if graph.task.kind == "multi-label" else F.one_hot(graph.y, 3).double()


def dense_errors(probabilities: Tensor, graph: Graph, alpha: float) -> tuple[Tensor, Tensor]:
    """Returns the errors, zero outside the training nodes, and their fixed point."""
    errors = (labels(graph) - probabilities) * graph.masks["train"][:, None]
    return errors, exact_solution(graph.adj, errors, alpha)


@pytest.mark.parametrize("alpha", [0.05, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_correction_adds_the_spread_errors_at_the_mean_size_of_the_training_errors(alpha: float, seed: int) -> None:
    graph = split_graph(seed)
    probabilities = guesses(graph)
    errors, spread = dense_errors(probabilities, graph, alpha)
    mean = errors.abs().sum(dim=1)[graph.masks["train"]].mean()
    norm = spread.abs().sum(dim=1, keepdim=True)
    reached = norm[:, 0] > mean / 500
    assert int(reached.sum()) > 40
    out = CorrectAndSmooth(alpha, tolerance=1e-14).correct(probabilities, graph)
    expected = (probabilities + mean * spread / norm).clamp(min=0)
    torch.testing.assert_close(out[reached], (expected / expected.sum(dim=1, keepdim=True))[reached])


@pytest.mark.parametrize("scaling", [1.0, 3])
def test_correction_multiplies_the_spread_errors_by_a_number(scaling: float) -> None:
    graph = many_labels(split_graph())
    probabilities = guesses(graph)
    _, spread = dense_errors(probabilities, graph, 0.2)
    out = CorrectAndSmooth(scaling=scaling, tolerance=1e-14).correct(probabilities, graph)
    torch.testing.assert_close(out, (probabilities + scaling * spread).clamp(0, 1))


@pytest.mark.parametrize("alpha", [0.05, 0.5])
@pytest.mark.parametrize("change", [lambda graph: graph, many_labels], ids=["single", "many"])
def test_smoothing_is_the_weighted_mean_of_probabilities_and_training_labels(
    alpha: float, change: Callable[[Graph], Graph]
) -> None:
    graph = change(split_graph())
    probabilities = guesses(graph)
    given = torch.where(graph.masks["train"][:, None], labels(graph), probabilities)
    ones = torch.ones(60, 1, dtype=torch.float64)
    expected = exact_solution(graph.adj, given, alpha) / exact_solution(graph.adj, ones, alpha)
    out = CorrectAndSmooth(smooth_alpha=alpha, tolerance=1e-14).smooth(probabilities, graph)
    torch.testing.assert_close(out, expected)


def test_both_steps_follow_each_other() -> None:
    for graph in (split_graph(), many_labels(split_graph())):
        change, probabilities = CorrectAndSmooth(0.1, 0.3), guesses(graph)
        corrected = change.correct(probabilities, graph)
        assert torch.equal(change(probabilities, graph), change.smooth(corrected, graph))
        assert not torch.allclose(corrected, probabilities)


def test_a_result_consists_of_probabilities() -> None:
    graph = split_graph().to(torch.float32)
    for scaling in ("auto", 50.0):
        out = CorrectAndSmooth(scaling=scaling)(guesses(graph), graph)
        assert out.dtype == torch.float32
        assert bool((out >= 0).all())
        torch.testing.assert_close(out.sum(dim=1), torch.ones(60))
        several = many_labels(graph)
        out = CorrectAndSmooth(scaling=scaling)(guesses(several), several)
        assert bool(((out >= 0) & (out <= 1)).all())


def test_a_predictor_without_errors_on_training_nodes_is_not_corrected() -> None:
    graph = split_graph()
    probabilities = torch.where(graph.masks["train"][:, None], labels(graph), guesses(graph))
    torch.testing.assert_close(CorrectAndSmooth().correct(probabilities, graph), probabilities)
    several = many_labels(graph)
    probabilities = torch.where(graph.masks["train"][:, None], labels(several), guesses(several))
    assert torch.equal(CorrectAndSmooth().correct(probabilities, several), probabilities)


def test_alpha_of_one_keeps_every_prediction_outside_the_training_nodes() -> None:
    graph = split_graph()
    train, probabilities = graph.masks["train"], guesses(graph)
    out = CorrectAndSmooth(1, 1)(probabilities, graph)
    torch.testing.assert_close(out[~train], probabilities[~train])
    torch.testing.assert_close(out[train], labels(graph)[train])


def test_nodes_that_no_training_node_reaches_are_smoothed_alone() -> None:
    # 0 - 1 - 2 has a training node, 3 - 4 has none, and 5 has no edge
    graph = Graph.from_edges(
        np.array([[0, 1, 3], [1, 2, 4]]), np.eye(6), np.array([0, 0, 1, 1, 0, 1]), train_mask=np.arange(6) == 0
    ).to(torch.float64)
    probabilities = guesses(graph)
    change = CorrectAndSmooth(tolerance=1e-14)
    corrected = change.correct(probabilities, graph)
    torch.testing.assert_close(corrected[3:], probabilities[3:])
    assert bool((corrected[:3, 0] > probabilities[:3, 0]).all())
    out = change(probabilities, graph)
    torch.testing.assert_close(out[5], probabilities[5])
    assert float(out[3:5, 0].mean()) == pytest.approx(float(probabilities[3:5, 0].mean()))


def test_a_row_that_errors_hardly_reach_is_not_enlarged() -> None:
    # on a long path the errors fade by a constant factor per hop
    at = np.arange(39)
    graph = Graph.from_edges(np.stack((at, at + 1)), np.eye(40), np.zeros(40, dtype=int), train_mask=np.arange(40) == 0)
    graph = replace(graph.to(torch.float64), task=Task("single-label", 2))
    probabilities = torch.full((40, 2), 0.5, dtype=torch.float64)
    errors = torch.zeros(40, 2, dtype=torch.float64)
    errors[0] = torch.tensor([0.5, -0.5])
    spread = exact_solution(graph.adj, errors, 0.5)
    far = 1 / spread.abs().sum(dim=1) > 1000
    assert 0 < int(far.sum()) < 40
    out = CorrectAndSmooth(0.5, tolerance=1e-14).correct(probabilities, graph)
    torch.testing.assert_close(out[far], probabilities[far] + spread[far])
    torch.testing.assert_close(out[~far], torch.tensor([1.0, 0.0], dtype=torch.float64).expand(int((~far).sum()), 2))


@pytest.mark.parametrize("change", [lambda graph: graph, many_labels], ids=["single", "many"])
def test_labels_outside_the_training_nodes_are_not_read(change: Callable[[Graph], Graph]) -> None:
    graph = change(split_graph())
    probabilities, expected = guesses(graph), CorrectAndSmooth()(guesses(graph), graph)
    others = ~graph.masks["train"]
    for poison in (0, 1, -1):
        y = graph.y.clone()
        y[others] = poison
        assert torch.equal(CorrectAndSmooth()(probabilities, replace(graph, y=y)), expected)
    y = graph.y.clone()
    y[graph.masks["train"]] = 0
    assert not torch.allclose(CorrectAndSmooth()(probabilities, replace(graph, y=y)), expected)


def test_a_few_columns_at_a_time_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    for graph in (split_graph(), many_labels(split_graph())):
        change, probabilities = CorrectAndSmooth(tolerance=1e-13), guesses(graph)
        kept = probabilities.clone()
        whole = change(probabilities, graph)
        with monkeypatch.context() as patch:
            # one column of float64 in the five tensors of the solver
            patch.setattr(inference, "INFERENCE_BYTES", 5 * 60 * 8)
            torch.testing.assert_close(change(probabilities, graph), whole, rtol=0, atol=1e-11)
        assert torch.equal(probabilities, kept)


def test_pyg_gives_the_same_result_on_a_ring() -> None:
    """On a regular graph PyG's clamps have no effect, since a step is a mean."""
    models = pytest.importorskip("torch_geometric.nn.models")
    at = np.arange(30)
    y, train_mask = np.arange(30) % 7 % 3, at % 4 == 0
    ring = Graph.from_edges(np.stack((at, (at + 1) % 30)), np.eye(30), y, train_mask=train_mask)
    graph = ring.to(torch.float64)
    probabilities, train = guesses(graph), graph.masks["train"]
    edges = torch.stack((graph.adj.row_index(), graph.adj.col.long()))
    theirs = models.CorrectAndSmooth(400, 0.8, 400, 0.7)
    ours = CorrectAndSmooth(0.2, 0.3, tolerance=1e-14)
    corrected = theirs.correct(probabilities, graph.y[train], train, edges, graph.adj.value).clamp(min=0)
    corrected /= corrected.sum(dim=1, keepdim=True)
    torch.testing.assert_close(ours.correct(probabilities, graph), corrected)
    smoothed = theirs.smooth(corrected, graph.y[train], train, edges, graph.adj.value)
    torch.testing.assert_close(ours(probabilities, graph), smoothed)


@needs_cuda
def test_a_graph_in_host_memory_is_propagated_on_another_device() -> None:
    for graph in (split_graph(), many_labels(split_graph())):
        change, probabilities = CorrectAndSmooth(tolerance=1e-13), guesses(graph)
        out = change(probabilities, graph, device=torch.device("cuda"))
        torch.testing.assert_close(out, change(probabilities, graph), rtol=0, atol=1e-11)
        placed = change(probabilities.cuda(), graph.to("cuda"))
        torch.testing.assert_close(placed, out.cuda(), rtol=0, atol=1e-11)


@pytest.mark.parametrize("kind", ["single-label", "multi-label"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_are_finite_and_keep_probabilities_and_their_order(kind: Any, dtype: torch.dtype) -> None:
    probabilities = torch.tensor([[0.0, 1e-30, 1e-5, 0.25], [0.5, 0.75, 1 - 1e-7, 1.0]], dtype=dtype)
    task = Task(kind, 4)
    given = probabilities / probabilities.sum(dim=1, keepdim=True) if kind == "single-label" else probabilities
    logits = to_logits(given, task)
    assert logits.dtype == dtype
    assert bool(logits.isfinite().all())
    torch.testing.assert_close(task.activate(logits), given)
    assert bool((logits.diff(dim=1) > 0).all())
    if kind == "multi-label":
        assert float(logits[1, 0]) == 0


def test_logits_of_a_model_become_logits() -> None:
    for graph in (split_graph(), many_labels(split_graph())):
        logits = random_rows(60, graph.task.num_outputs, 5)
        out = CorrectAndSmooth().apply_to_logits(logits, graph)
        torch.testing.assert_close(graph.task.activate(out), CorrectAndSmooth()(graph.task.activate(logits), graph))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"correct_alpha": 0}, "`correct_alpha` is 0; give a number above 0 and at most 1"),
        ({"smooth_alpha": 1.5}, "`smooth_alpha` is 1.5; give a number above 0 and at most 1"),
        ({"smooth_alpha": float("nan")}, "`smooth_alpha` is nan; give a number above 0 and at most 1"),
        ({"smooth_alpha": WRONG}, "`smooth_alpha` is 'wrong', of type str; give a number"),
        ({"scaling": WRONG}, "`scaling` is `wrong`; give `auto` or a positive number"),
        ({"scaling": -1.0}, "`scaling` is -1.0; give `auto` or a positive number"),
        ({"scaling": float("inf")}, "`scaling` is inf; give `auto` or a positive number"),
        ({"scaling": None}, "`scaling` is None, of type NoneType; give a number"),
        ({"tolerance": 1}, "`tolerance` is 1; give a number between 0 and 1"),
    ],
)
def test_an_impossible_value_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        CorrectAndSmooth(**values)
    assert message in str(error.value)


def test_a_graph_that_cannot_be_corrected_is_refused() -> None:
    graph = split_graph()
    numbers = replace(graph, y=graph.y.double()[:, None], task=Task("regression", 1))
    for step in (CorrectAndSmooth(), CorrectAndSmooth().correct, CorrectAndSmooth().smooth):
        with pytest.raises(ConfigError, match="`graph` has a regression task, but Correct and Smooth needs classes"):
            step(numbers.y, numbers)
        with pytest.raises(GraphError, match="`graph` has no training nodes; give it labels `y` and a `train_mask`"):
            step(guesses(graph), replace(graph, masks={}))
    with pytest.raises(GraphError, match="`graph` is 'wrong', of type str; make a graph with"):
        CorrectAndSmooth()(guesses(graph), WRONG)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.numpy(), "`probabilities` is of type ndarray and shape (60, 3); give the probabilities of every"),
        (lambda x: x.round().long(), "`probabilities` is of type Tensor and shape (60, 3); give the probabilities of"),
        (lambda x: x[:, :2], "`probabilities` has shape (60, 2), but the graph has 60 nodes and 3 outputs; give the"),
        (lambda x: x[:5], "`probabilities` has shape (5, 3), but the graph has 60 nodes and 3 outputs; give the"),
        (lambda x: x - 3, "; give the probabilities of every node, such as `graph.task.activate(logits)`"),
        (lambda x: 7 * x / x.max(), " to 7; give the probabilities of every node"),
        (lambda x: x * float("nan"), "`probabilities` has values from nan to nan; give the probabilities of every"),
    ],
)
def test_values_that_are_not_probabilities_of_every_node_are_refused(
    change: Callable[[Tensor], Any], message: str
) -> None:
    graph = split_graph()
    with pytest.raises(GraphError) as error:
        CorrectAndSmooth()(change(guesses(graph)), graph)
    assert message in str(error.value)
