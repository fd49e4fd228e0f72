"""Models trained side by side, averaged by weights that validation chooses."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lazygnn import inference
from lazygnn.batch import Batch
from lazygnn.config import TrainerOptions
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import StoredHistory
from lazygnn.loader import ClusterLoader, FullLoader
from lazygnn.methods import build, resolve
from lazygnn.model import Model
from lazygnn.models import MLP, Decoupled, Mixture
from lazygnn.models.mixture import STEPS
from lazygnn.propagation import Drift, ExactPropagation, LazyPropagation, NoPropagation, Propagation
from lazygnn.training import Trainer
from tests.helpers import exact_solution, note_scratch, open_float64, random_rows

N, OUT = 60, 3
PTR = torch.tensor([0, 10, 25, 26, 45, N])


def lazy() -> LazyPropagation:
    return LazyPropagation(0.2, open_float64(N, OUT, Drift(0.1)), eval_tolerance=1e-12)


def make(*propagations: Propagation, dropout: float = 0.0) -> Mixture:
    """Makes a mixture of MLPs with these propagations behind them, by default two exact ones and none."""
    torch.manual_seed(0)
    used = propagations or (ExactPropagation(0.2, 2), ExactPropagation(0.5, 2), NoPropagation())
    return Mixture([Decoupled(MLP(3, 8, OUT, mlp_layers=2, dropout=dropout), each) for each in used]).double()


def set_weights(model: Mixture, *weights: float) -> None:
    model.weights.copy_(torch.tensor(weights))


def averages(num_models: int) -> Iterator[tuple[float, ...]]:
    """Yields every list of weights in quarters that adds up to 1: bars among stars."""
    for bars in combinations(range(STEPS + num_models - 1), num_models - 1):
        edges = (-1, *bars, STEPS + num_models - 1)
        yield tuple((right - left - 1) / STEPS for left, right in pairwise(edges))


def weighted(weights: tuple[float, ...], outputs: list[Tensor]) -> Tensor:
    return sum((w * out for w, out in zip(weights, outputs, strict=True)), torch.zeros(()))


def prefers(wanted: Tensor, graph: Graph) -> Callable[[Tensor], bool]:
    rows = wanted[graph.masks["val"]]
    return lambda outputs: torch.allclose(outputs, rows, rtol=0, atol=1e-12)


def test_outputs_are_the_weighted_average(graph: Graph) -> None:
    model, batch = make(), Batch.full(graph, 2)
    outputs = [each(batch) for each in model]
    assert model.weights.tolist() == pytest.approx([1 / 3] * 3)
    for weights in [(0.25, 0.5, 0.25), (0.0, 1.0, 0.0), (0.75, 0.0, 0.25)]:
        set_weights(model, *weights)
        expected = weighted(weights, outputs)
        torch.testing.assert_close(model(batch), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(model.infer(graph), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_outputs_under_autocast_are_weighted_too(block_graph: Graph, dtype: torch.dtype) -> None:
    model, batch = make().float(), Batch.full(block_graph, 2)
    expected = model(batch)
    with torch.autocast("cpu", dtype=dtype):
        out = model(batch)
    assert out.dtype == dtype
    assert float((out - expected).detach().norm()) < 0.05 * float(expected.detach().norm())


def gradients(model: Model, batch: Batch, graph: Graph) -> list[Tensor]:
    return list(torch.autograd.grad(model.loss(batch, graph.task), list(model.parameters())))


def test_the_loss_is_the_sum_and_models_do_not_change_each_other(graph: Graph) -> None:
    model, batch = make(), Batch.full(graph, 2)
    losses = [each.loss(batch, graph.task) for each in model]
    alone = [grad for each in model for grad in gradients(each, batch, graph)]
    for weights in [(0.25, 0.5, 0.25), (0.0, 0.0, 1.0)]:
        set_weights(model, *weights)
        torch.testing.assert_close(model.loss(batch, graph.task), sum(losses), rtol=0, atol=1e-12)
        for found, expected in zip(gradients(model, batch, graph), alone, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weights", list(averages(3)), ids=str)
def test_selection_takes_the_average_with_the_best_score(graph: Graph, weights: tuple[float, ...]) -> None:
    model = make(lazy(), lazy(), NoPropagation())
    wanted = weighted(weights, [each.infer(graph) for each in model])
    asked: list[Tensor] = []

    def score(outputs: Tensor) -> float:
        asked.append(outputs)
        return 0.9 if prefers(wanted, graph)(outputs) else 0.1

    torch.testing.assert_close(model.select(graph, score), wanted, rtol=0, atol=1e-12)
    assert tuple(model.weights.tolist()) == weights
    assert len(asked) == 15
    assert all(outputs.shape == (graph.count("val"), OUT) for outputs in asked)
    torch.testing.assert_close(model.infer(graph), wanted, rtol=0, atol=1e-12)
    # the weights are stored with the models
    restored = make(lazy(), lazy(), NoPropagation())
    restored.load_state_dict(model.state_dict())
    assert torch.equal(restored.infer(graph), model.infer(graph))


def test_of_equal_averages_the_last_model_is_taken(graph: Graph) -> None:
    model = make()
    model.select(graph, lambda _: 0.5)
    assert model.weights.tolist() == [0, 0, 1]
    last = prefers(list(model)[-1].infer(graph), graph)
    model.select(graph, lambda outputs: 0.4 if last(outputs) else 0.5)
    # without the last model alone, the one with the most of it
    assert model.weights.tolist()[-1] == 1 - 1 / STEPS


@pytest.mark.parametrize("score", [7.0, -3.0], ids=str)
def test_a_score_that_is_not_a_proportion_selects_too(graph: Graph, score: float) -> None:
    model = make()
    first = prefers(next(iter(model)).infer(graph), graph)
    model.select(graph, lambda outputs: score if first(outputs) else score - 0.01)
    assert model.weights.tolist() == [1, 0, 0]


def test_a_model_of_weight_zero_is_not_inferred(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: Graph) -> Any:
        raise AssertionError("a model of weight 0 was inferred")

    model = make()
    first, _, last = model
    outputs = [first.infer(graph), last.infer(graph)]
    monkeypatch.setattr(list(model)[1], "infer", refuse)
    set_weights(model, 0.5, 0.0, 0.5)
    torch.testing.assert_close(model.infer(graph), weighted((0.5, 0.5), outputs), rtol=0, atol=1e-12)
    monkeypatch.setattr(first, "infer", refuse)
    set_weights(model, 0.0, 0.0, 1.0)
    assert torch.equal(model.infer(graph), outputs[1])


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_embeddings_are_those_of_the_models_side_by_side(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_disk: bool
) -> None:
    monkeypatch.setattr(inference, "INFERENCE_ROWS", 7)
    names = note_scratch(monkeypatch)
    models = list(make())
    model = Mixture(models, scratch=tmp_path if on_disk else None).double()
    expected = [each.embed(graph) for each in models]
    torch.testing.assert_close(model.embed(graph), torch.cat(expected, dim=1), rtol=0, atol=0)
    assert ("mixture" in names) == on_disk
    # the models of weight 0 have no part in the outputs
    set_weights(model, 0.25, 0.0, 0.75)
    assert torch.equal(model.embed(graph), torch.cat((expected[0], expected[2]), dim=1))
    set_weights(model, 0.0, 1.0, 0.0)
    assert torch.equal(model.embed(graph), expected[1])


def test_every_history_is_filled_and_diagnosed(graph: Graph) -> None:
    model = make(lazy(), lazy(), NoPropagation())
    views = [each.propagation for each in model if isinstance(each, Decoupled)][:2]
    stored = [view.features for view in views if isinstance(view, LazyPropagation)]
    for batch in ClusterLoader(graph, PTR, 2).sweep():
        model.fill(batch)
    for index, (history, factor) in enumerate(zip(stored, (1.1, 3), strict=True)):
        assert isinstance(history, StoredHistory)
        assert history.complete
        x = random_rows(N, OUT, index)
        history.push(torch.arange(N), factor * exact_solution(graph.adj, x, 0.2), x)
    assert model.diagnose(graph) == {"fixed_point_error": pytest.approx(2, abs=1e-2)}
    assert make().diagnose(graph) == {}


def test_layers_are_those_of_all_models() -> None:
    model = make()
    assert [[id(p) for p in layer] for layer in model.layer_parameters()] == [
        [id(p) for p in layer] for each in model for layer in each.layer_parameters()
    ]


def test_a_mixture_is_replayed_if_all_its_models_are() -> None:
    assert make().replayable
    other = list(make())
    other[1].replayable = False
    assert not Mixture(other).replayable


@pytest.mark.parametrize("in_parts", [False, True], ids=["whole", "parts"])
def test_labels_outside_the_training_split_change_the_weights_of_the_mixture_alone(
    graph: Graph, in_parts: bool
) -> None:
    def train(y: Tensor) -> dict[str, Tensor]:
        used, model = replace(graph, y=y), make(lazy(), NoPropagation(), dropout=0.2)
        loader = ClusterLoader(used, PTR, 2) if in_parts else FullLoader(used, 2)
        torch.manual_seed(1)
        Trainer(model, loader, used, TrainerOptions(epochs=4, lr=0.05)).run()
        return {name: value.clone() for name, value in model.state_dict().items() if name != "weights"}

    state = train(graph.y)
    other = train(torch.where(graph.masks["train"], graph.y, (graph.y + 1) % OUT))
    assert all(torch.equal(value, other[name]) for name, value in state.items())
    flipped = train(torch.where(graph.masks["train"], (graph.y + 1) % OUT, graph.y))
    assert not all(torch.equal(value, flipped[name]) for name, value in state.items())


def test_what_does_not_fit_is_named() -> None:
    for models in ([], None, [next(iter(make()))], [nn.Linear(1, 1), nn.Linear(1, 1)]):
        with pytest.raises(ConfigError, match=r"`models` is .*; give a list of two or more `Model`"):
            Mixture(models)  # type: ignore[arg-type]


def test_shares_are_the_weights_by_name() -> None:
    model = make()
    set_weights(model, 0.25, 0.0, 0.75)
    assert model.shares == {"0": 0.25, "1": 0.0, "2": 0.75}
    named = Mixture(list(make()), names=["stack", "narrow", "mlp"])
    assert named.shares == pytest.approx(dict.fromkeys(["stack", "narrow", "mlp"], 1 / 3))
    assert next(iter(model)).shares == {}
    for names in (["stack", "mlp"], ["mlp", "mlp", "stack"]):
        with pytest.raises(ConfigError, match=r"`names` is .* for 3 models; give each a name of its own"):
            Mixture(list(make()), names=names)


def test_labels_are_read_if_a_model_that_counts_reads_them(block_graph: Graph) -> None:
    for share, weights, reads in [(0.5, (0.5, 0.5), True), (0.5, (0.0, 1.0), False), (0.0, (0.5, 0.5), False)]:
        values = {"hidden_channels": 8, "label_input": share, "beside": ["mlp"]}
        model = build(resolve("lazygnn-deep", "block", values), block_graph).model
        assert isinstance(model, Mixture)
        model.weights.copy_(torch.tensor(weights))
        assert model.reads_labels == reads
