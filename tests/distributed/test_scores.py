from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lazygnn.data.folder import load_folder
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.scores import assess_ranks, score_ranks
from lazygnn.distributed.shard import open_shard
from lazygnn.errors import DivergenceError, GraphError
from lazygnn.methods import build, resolve
from lazygnn.model import Model
from lazygnn.models import MLP, Decoupled, Mixture
from lazygnn.ops import own_rows
from lazygnn.propagation import NoPropagation
from lazygnn.task import Task
from lazygnn.training.criterion import calibrated_loss, tempered_losses
from lazygnn.training.evaluation import assess
from lazygnn.training.metrics import find_metric, score
from tests.distributed.workers import in_threads
from tests.helpers import random_rows

OUTPUTS = random_rows(150, 3, 5, torch.float32)


def perceptron(outputs: int = 3) -> Model:
    """Returns a model for tests that replace its inference."""
    return Decoupled(MLP(1, 1, outputs, mlp_layers=1), NoPropagation())


def test_memory_is_returned_before_an_evaluation(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def outputs(*_: object, **__: object) -> Tensor:
        events.append("inferred")
        return OUTPUTS

    monkeypatch.setattr("lazygnn.distributed.scores.return_free_memory", lambda: events.append("returned"))
    monkeypatch.setattr("lazygnn.training.evaluation.infer", outputs)

    def run(ranks: Ranks) -> dict[str, float]:
        graph = open_shard(prepared, ranks).graph
        return assess_ranks(perceptron(), graph, ranks).scores

    in_threads(1, run)
    assert events == ["returned", "inferred"]


def scored(folder: Path, metric: str, outputs: Tensor = OUTPUTS) -> list[float]:
    def run(ranks: Ranks) -> float:
        graph = open_shard(folder, ranks).graph
        name, function = find_metric(metric, graph.task)
        return score_ranks(name, function, own_rows(graph.adj, outputs)[graph.masks["val"]], graph, ranks, "val")

    return in_threads(3, run)


@pytest.mark.parametrize("metric", ["accuracy", "micro-f1", "macro-f1", "roc-auc"])
def test_a_score_is_that_of_the_whole_graph(prepared: Path, metric: str) -> None:
    graph = load_folder(prepared)
    _, function = find_metric(metric, graph.task)
    expected = score(function, OUTPUTS, graph.y, {"val": graph.masks["val"]})["val"]
    assert scored(prepared, metric) == [pytest.approx(expected, abs=1e-12)] * 3


@pytest.mark.parametrize("metric", ["accuracy", "macro-f1"])
def test_an_output_that_is_not_finite_on_one_rank_is_an_error_on_all(prepared: Path, metric: str) -> None:
    wrong = OUTPUTS.clone()
    wrong[load_folder(prepared).masks["val"].nonzero()[-1]] = torch.nan
    with pytest.raises(DivergenceError, match="split `val` hold nan"):
        scored(prepared, metric, wrong)


def test_a_metric_without_a_value_is_an_error(prepared: Path) -> None:
    def run(ranks: Ranks) -> float:
        graph = open_shard(prepared, ranks).graph
        graph = replace(graph, y=torch.zeros_like(graph.y))
        name, function = find_metric("roc-auc", graph.task)
        return score_ranks(name, function, own_rows(graph.adj, OUTPUTS)[graph.masks["val"]], graph, ranks, "val")

    with pytest.raises(GraphError, match="split `val`"):
        in_threads(2, run)


@pytest.mark.parametrize("weighs", [True, False], ids=["score less loss", "score alone"])
def test_a_mixture_chooses_the_same_weights_on_all_ranks(prepared: Path, weighs: bool) -> None:
    graph = load_folder(prepared)
    torch.manual_seed(0)
    model = build(resolve("lazygnn-deep", "mine", {"num_blocks": 1, "hidden_channels": 8}), graph).model
    assert isinstance(model, Mixture)
    loss = graph.task if weighs else None
    expected = assess(model, graph, loss=loss, select=True)
    chosen = model.weights.clone()
    assert chosen.tolist() != [1 / len(chosen)] * len(chosen)
    model.weights.fill_(1 / len(chosen))
    # threads share the model, and all of them choose alike
    for found in in_threads(
        2, lambda ranks: assess_ranks(model, open_shard(prepared, ranks).graph, ranks, loss=loss, select=True)
    ):
        assert found.scores == pytest.approx(expected.scores, abs=1e-3)
        assert found.value == pytest.approx(expected.value, abs=1e-3)
    assert torch.equal(model.weights, chosen)


@pytest.mark.parametrize("several", [False, True], ids=["classes", "labels"])
def test_the_criterion_is_that_of_the_whole_graph(
    prepared: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    """Nodes of validation are spread over the ranks unevenly, and temperature and mean are those of all of them."""
    graph = load_folder(prepared)
    task = Task("multi-label", 3) if several else graph.task
    # a node has up to three labels
    y = (graph.y[:, None] >= torch.arange(3)).float() if several else graph.y
    val, metric = graph.masks["val"], "micro-f1" if several else "accuracy"
    reached = score(find_metric(metric, task)[1], OUTPUTS, y, {"val": val})["val"]
    expected = reached - calibrated_loss(tempered_losses(task, OUTPUTS[val], y[val]))
    monkeypatch.setattr("lazygnn.training.evaluation.infer", lambda _, shard, **__: own_rows(shard.adj, OUTPUTS))

    def run(ranks: Ranks) -> float | None:
        shard = open_shard(prepared, ranks).graph
        shard = replace(shard, y=own_rows(shard.adj, y), task=task)
        return assess_ranks(perceptron(), shard, ranks, loss=task).value

    assert in_threads(3, run) == [pytest.approx(expected, abs=1e-9)] * 3


def test_the_threshold_is_that_of_the_whole_graph(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load_folder(prepared)
    labels = (graph.y[:, None] == torch.arange(3)).float()
    task = Task("multi-label", 3)
    # rare labels, and outputs that are too low
    outputs = OUTPUTS + labels - 2
    monkeypatch.setattr("lazygnn.training.evaluation.infer", lambda *_, **__: outputs)
    whole = perceptron()
    expected = assess(whole, replace(graph, y=labels, task=task), select=True, learn_threshold=True)
    monkeypatch.setattr("lazygnn.training.evaluation.infer", lambda _, shard, **__: own_rows(shard.adj, outputs))

    def run(ranks: Ranks) -> tuple[dict[str, float], float]:
        shard, model = open_shard(prepared, ranks).graph, perceptron()
        shard = replace(shard, y=own_rows(shard.adj, labels), task=task)
        found = assess_ranks(model, shard, ranks, select=True, learn_threshold=True)
        return found.scores, model.decide(task).threshold

    chosen = whole.decide(task).threshold
    assert chosen < 0.5
    for scores, threshold in in_threads(3, run):
        assert scores == pytest.approx(expected.scores, abs=1e-12)
        assert threshold == chosen
