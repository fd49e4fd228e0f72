"""The method `lazygnn-deep`: its options, its histories, and short trainings on a small graph."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.config import Config
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.history.warmstart import WarmStart
from lazygnn.loader import ClusterLoader
from lazygnn.methods import Built, Place, build, build_model, resolve
from lazygnn.methods.base import Facts
from lazygnn.methods.lazygnn_deep import adapt
from lazygnn.model import Model
from lazygnn.models import Convolution, Decoupled, LazyBlock, LazyStack, Mixture
from lazygnn.models.layers import TargetBatchNorm
from lazygnn.propagation import Drift, ExactPropagation, LazyPropagation, Mix, NoPropagation, fit_response
from lazygnn.training import Trainer, evaluate
from tests.helpers import note_scratch

Make = Callable[..., Built]
METHOD = "lazygnn-deep"
SMALL: dict[str, Any] = {"hidden_channels": 8, "num_blocks": 2, "epochs": 3}
PARTS: dict[str, Any] = SMALL | {"num_parts": 4, "parts_per_batch": 2, "partition": "random"}


def parts_of(built: Built) -> tuple[LazyStack, Decoupled, Decoupled]:
    """Returns the stack, the MLP and the decoupled model."""
    assert isinstance(built.model, Mixture)
    stack, mlp, decoupled = built.model
    assert isinstance(stack, LazyStack)
    assert isinstance(mlp, Decoupled)
    assert isinstance(decoupled, Decoupled)
    return stack, mlp, decoupled


def views_of(model: LazyStack) -> list[list[LazyPropagation | ExactPropagation]]:
    """Returns the far views of every block."""
    return [cast(list[LazyPropagation | ExactPropagation], list(cast(LazyBlock, block).far)) for block in model.blocks]


def histories_of(model: Model) -> dict[str, tuple[int, bool, WarmStart]]:
    """Returns channels, whether inputs of the halo are read, and the warm start of every history."""
    found = named_histories(model)
    return {name: (history.values.channels, history.halo_inputs, history.warm) for name, history in found.items()}


def train(graph: Graph, folder: Path, **values: Any) -> tuple[Model, list[float], Graph]:
    """Trains from seed 0 and returns the model, the loss of every epoch, and the graph in the order of its parts."""
    config = resolve(METHOD, "block", values)
    torch.manual_seed(0)
    built = build(config, graph, folder=folder)
    losses: list[float] = []
    trainer = Trainer(
        built.model, built.loader, built.graph, config.trainer, on_epoch=lambda report: losses.append(report.loss)
    )
    result = trainer.fit()
    assert result.scores == evaluate(built.model, built.graph)
    return built.model, losses, built.graph


def test_every_view_has_a_history_and_a_response_of_its_own(make: Make, block_graph: Graph) -> None:
    built = make(METHOD, **SMALL, alphas=[0.1, 0.5, -0.5], beta=0.2)
    stack, mlp, decoupled = parts_of(built)
    warm = Drift(0.2)
    # the first view of a block reads inputs of the halo for its near view
    assert histories_of(built.model) == {
        **{
            f"models.0.blocks.{block}.far.{view}.features": (8, view == 0, warm)
            for block in (0, 1)
            for view in range(3)
        },
        "models.2.propagation.features": (3, False, warm),
    }
    for views in views_of(stack):
        for alpha, view in zip((0.1, 0.5, -0.5), views, strict=True):
            sign = 1 if alpha > 0 else -1
            assert isinstance(view, LazyPropagation)
            assert (view.alpha, view.sign) == (abs(alpha), sign)
            assert view.response == fit_response(block_graph.adj, abs(alpha), 2, beta=0.2, level=0.8, sign=sign)
    assert isinstance(mlp.propagation, NoPropagation)
    propagation = decoupled.propagation
    assert isinstance(propagation, LazyPropagation)
    assert (propagation.alpha, propagation.sign) == (0.1, 1)
    assert propagation.response == fit_response(block_graph.adj, 0.1, 2, beta=0.2, level=0.8)


def test_options_reach_the_model(make: Make, block_graph: Graph) -> None:
    options = {"alphas": [-0.3], "view_channels": 5, "num_layers": 3, "level": 0.7, "norm": "batch", "beside": []}
    model = make(METHOD, **SMALL, **options, dropout=0.3, input_dropout=0.2, eval_layers=7, eval_tolerance=0.1).model
    assert isinstance(model, LazyStack)
    assert histories_of(model) == {f"blocks.{block}.far.0.features": (5, True, Drift(1 - 0.9**1.5)) for block in (0, 1)}
    ((view,), _) = views_of(model)
    assert isinstance(view, LazyPropagation)
    assert (view.alpha, view.sign, view.eval_layers, view.eval_tolerance) == (0.3, -1, 7, 0.1)
    assert view.response == fit_response(block_graph.adj, 0.3, 3, beta=1 - 0.9**1.5, level=0.7, sign=-1)
    assert (model.dropout, model.input_dropout) == (0.3, 0.2)
    assert {type(module).__name__ for module in model.modules() if "Norm" in type(module).__name__} == {
        "TargetBatchNorm"
    }
    # the decoupled model beside a high-pass is a low-pass
    _, _, decoupled = parts_of(make(METHOD, **SMALL, alphas=[-0.3]))
    assert isinstance(decoupled.propagation, LazyPropagation)
    assert (decoupled.propagation.alpha, decoupled.propagation.sign) == (0.3, 1)


@pytest.mark.parametrize("beside", [["mlp"], ["decoupled"], ["decoupled", "mlp"]], ids=str)
def test_models_beside_the_stack_are_chosen(make: Make, beside: list[str]) -> None:
    model = make(METHOD, **SMALL, beside=beside).model
    assert isinstance(model, Mixture)
    _, *others = model
    kinds = {"mlp": NoPropagation, "decoupled": LazyPropagation}
    # the last one is taken unless an average is better
    assert [type(cast(Decoupled, other).propagation) for other in others] == [
        kinds[name] for name in sorted(beside)[::-1]
    ]


def test_a_narrow_stack_has_a_quarter_of_the_channels_and_sees_all_of_its_input(make: Make) -> None:
    options = SMALL | {"hidden_channels": 10, "input_dropout": 0.5, "dropout": 0.3, "alphas": [0.1, -0.5]}
    model = make(METHOD, **options, beside=["decoupled", "narrow"]).model
    assert isinstance(model, Mixture)
    wide, narrow, decoupled = model
    assert isinstance(wide, LazyStack)
    assert isinstance(narrow, LazyStack)
    assert isinstance(decoupled, Decoupled)
    assert (wide.input_dropout, narrow.input_dropout, narrow.dropout) == (0.5, 0.0, 0.3)
    assert [[(view.alpha, view.sign) for view in views] for views in views_of(narrow)] == [[(0.1, 1), (0.5, -1)]] * 2
    for index, channels in enumerate((10, 3)):
        found = histories_of(model)
        names = [f"models.{index}.blocks.{block}.far.{view}.features" for block in (0, 1) for view in (0, 1)]
        assert [found[name][0] for name in names] == [channels] * 4


@pytest.mark.parametrize(("view_channels", "narrow"), [(8, 8), (2, 2), (5, 4)])
def test_views_of_a_narrow_stack_are_not_widened(make: Make, view_channels: int, narrow: int) -> None:
    width = {"hidden_channels": 16 if view_channels < 8 else 64}
    model = make(METHOD, **SMALL | width, view_channels=view_channels, beside=["narrow"]).model
    found = {name.split(".")[1]: channels for name, (channels, *_) in histories_of(model).items()}
    assert found == {"0": view_channels, "1": narrow}


def test_two_convolutions_are_as_wide_as_the_stack_and_store_their_inputs_in_parts(make: Make) -> None:
    options = SMALL | {"dropout": 0.3, "input_dropout": 0.2}
    for parts, stored in ((1, []), (4, [(8, False, Mix(1.0))] * 2)):
        model = make(METHOD, **options, beside=["convolutions", "mlp"], num_parts=parts).model
        assert isinstance(model, Mixture)
        _, convolutions, mlp = model
        assert isinstance(convolutions, LazyStack)
        assert isinstance(mlp, Decoupled)
        blocks = cast(list[Convolution], list(convolutions.blocks))
        assert {(type(block), type(block.norm)) for block in blocks} == {(Convolution, TargetBatchNorm)}
        # what the last one returns is dropped by the stack
        assert [block.dropout for block in blocks] == [0.3, 0.0]
        assert (convolutions.dropout, convolutions.input_dropout) == (0.3, 0.2)
        assert [value for name, value in histories_of(model).items() if name.startswith("models.1.")] == stored


def test_a_narrow_stack_changes_no_other_model(block_graph: Graph, tmp_path: Path) -> None:
    """Weights of the stack follow from its own loss; with dropout, random numbers would differ."""
    states = []
    for beside in ([], ["narrow"]):
        torch.manual_seed(0)
        model, _, _ = train(block_graph, tmp_path, **PARTS, dropout=0.0, beside=beside)
        state = model.state_dict()
        states.append({name.removeprefix("models.0."): value for name, value in state.items()})
    alone, beside_narrow = states
    for name, value in alone.items():
        torch.testing.assert_close(beside_narrow[name], value)


def test_inference_opens_no_history(block_graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = note_scratch(monkeypatch)
    config = resolve(METHOD, "block", PARTS | {"history": "disk", "eval_storage": "disk"})
    model = build_model(config, block_graph, Place(torch.device("cpu"), tmp_path, training=False))
    assert len(named_histories(model)) == 0
    assert list(tmp_path.iterdir()) == []
    assert model.infer(block_graph).shape == (60, 3)
    assert names == {"stack", "inference"} | {f"block-{index}" for index in range(3)}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("history", ["device", "host", "pinned", "disk"])
def test_every_tier_trains_alike(block_graph: Graph, tmp_path: Path, history: str) -> None:
    bank = {"alphas": [0.1, 0.5, -0.5], "view_channels": 5, "beside": ["narrow", "convolutions", "mlp", "decoupled"]}
    states = []
    for tier in ("device", history):
        model, losses, graph = train(block_graph, tmp_path / tier, **PARTS, **bank, history=tier)
        assert all(stored.complete for stored in named_histories(model).values())
        states.append((losses, model.state_dict(), model.infer(graph)))
    (losses, state, outputs), (others, other, found) = states
    assert losses == others
    assert all(torch.equal(value, other[name]) for name, value in state.items())
    assert torch.equal(outputs, found)
    names = {path.name for path in (tmp_path / history).glob("*")}
    assert ("block-1-2.inputs.rows" in names) == (history == "disk")


@pytest.mark.parametrize(("dtype", "error"), [("bfloat16", 0.05), ("float16", 0.01), ("int8", 0.05)])
def test_every_number_format_trains_nearly_alike(block_graph: Graph, tmp_path: Path, dtype: str, error: float) -> None:
    options = PARTS | {"dropout": 0.0}
    _, expected, _ = train(block_graph, tmp_path, **options)
    model, losses, _ = train(block_graph, tmp_path, **options, history_dtype=dtype)
    kept = {history.values.parts["rows"].dtype for history in named_histories(model).values()}
    assert kept == {getattr(torch, dtype)}
    assert losses == pytest.approx(expected, rel=error)
    assert losses != expected
    assert losses[-1] < losses[0]


def test_exact_steps_train_without_histories(block_graph: Graph, tmp_path: Path) -> None:
    model, losses, _ = train(block_graph, tmp_path, **SMALL, exact=True, num_layers=5, alphas=[0.1, -0.5], dropout=0.0)
    assert len(named_histories(model)) == 0
    assert isinstance(model, Mixture)
    stack, _, decoupled = model
    for views in views_of(cast(LazyStack, stack)):
        assert all(isinstance(view, ExactPropagation) for view in views)
        assert [(view.alpha, view.sign, view.eval_layers) for view in views] == [(0.1, 1, 5), (0.5, -1, 5)]
    assert isinstance(cast(Decoupled, decoupled).propagation, ExactPropagation)
    assert losses[-1] < losses[0]


def test_one_part_has_the_outputs_and_gradients_of_the_full_batch(block_graph: Graph) -> None:
    results: list[list[Tensor]] = []
    for one_part in (False, True):
        torch.manual_seed(0)
        built = build(resolve(METHOD, "block", SMALL | {"alphas": [0.1, -0.5], "view_channels": 5}), block_graph)
        model = built.model.train()
        (batch,) = ClusterLoader(block_graph, torch.tensor([0, 60]), 2) if one_part else [Batch.full(block_graph, 2)]
        found: list[Tensor] = []
        # the first visit, which finds no history, and two more
        for _ in range(3):
            loss = model.loss(batch, block_graph.task)
            found += [loss, *torch.autograd.grad(loss, list(model.parameters()))]
        results.append([*found, model(batch)])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"exact": True, "num_parts": 4},
            "`exact` is true, but `num_parts` is 4; exact steps need full batch: set `num_parts=1`, or omit `exact`",
        ),
        (
            {"alphas": [0.1, 0.0]},
            r"`alphas` is \[0\.1, 0\.0\]; a weight of 0 has no fixed point: remove it",
        ),
        ({"beside": ["mlp", "narrow", "mlp"]}, r"`beside` is \['mlp', 'narrow', 'mlp'\]; name each model once"),
    ],
)
def test_options_that_cannot_be_combined_are_refused_with_a_remedy(
    unchecked: Callable[..., Config], block_graph: Graph, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        build(resolve(METHOD, "block", values), block_graph)
    with pytest.raises(ConfigError, match=message):
        build(unchecked(METHOD, **values), block_graph)


@pytest.mark.parametrize(
    ("name", "value"), [("beta", 0.3), ("level", 0.7), ("history", "host"), ("history_dtype", "int8")]
)
def test_options_without_effect_on_exact_steps_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"`{name}` is {value}, but `exact` is true, so that no history is stored"):
        resolve(METHOD, "block", {"exact": True, name: value})
    assert getattr(resolve(METHOD, "block", {name: value}).model, name) == value


@pytest.mark.parametrize(
    "values",
    [
        {"alphas": []},
        {"alphas": [1.5]},
        {"alphas": [-2.0]},
        {"num_blocks": 0},
        {"beside": ["gcn"]},
        {"halo": "paper"},
        {"level": 0.0},
    ],
    ids=str,
)
def test_impossible_values_are_named(values: dict[str, Any]) -> None:
    (name,) = values
    with pytest.raises(ConfigError, match=name):
        resolve(METHOD, "block", values)


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        ({}, {"beta": 0.1, "level": 0.8, "edges": "device"}),
        ({"num_layers": 4, "features": "host"}, {"beta": 0.19, "level": 0.8, "edges": "host"}),
        ({"beta": 0.3, "level": 0.9, "edges": "device"}, {}),
    ],
    ids=str,
)
def test_what_is_left_open_is_chosen(
    unchecked: Callable[..., Config], values: dict[str, Any], chosen: dict[str, Any]
) -> None:
    options = unchecked(METHOD, **values).model
    assert options.chosen() == chosen
    filled = options.resolved()
    assert {name: getattr(filled, name) for name in values} == values
    assert {name: getattr(filled, name) for name in chosen} == pytest.approx(chosen, abs=1e-6)


@pytest.mark.parametrize(
    ("facts", "num_blocks"),
    [
        (Facts(num_nodes=3_000, num_train=140, in_channels=1_433), 2),
        (Facts(num_nodes=90_000, num_train=50_000, in_channels=100), 8),
        (Facts(num_nodes=90_000, num_train=2_000, in_channels=100), 5),
        (Facts(num_nodes=2_400_000, num_train=200_000, in_channels=100), 4),
        (Facts(num_nodes=2_400_000, num_train=100, in_channels=100), 2),
    ],
    ids=str,
)
def test_scarce_labels_and_large_graphs_take_fewer_blocks(facts: Facts, num_blocks: int) -> None:
    assert adapt(facts)["num_blocks"] == num_blocks


@pytest.mark.parametrize(
    ("num_train", "near_labels", "shown"),
    [(20_000, 0.5, 0.5), (20_000, 0.4, 0.0), (19_000, 1.0, 0.0), (10**6, 1.0, 0.5)],
)
def test_plentiful_labels_near_the_other_nodes_are_shown(num_train: int, near_labels: float, shown: float) -> None:
    facts = Facts(num_nodes=2_400_000, num_train=num_train, in_channels=100, near_labels=near_labels)
    assert adapt(facts)["label_input"] == shown


@pytest.mark.parametrize(
    ("num_train", "in_channels", "more"),
    [(1_000, 100, True), (19_000, 1_000, True), (21_000, 1_000, False), (9_999, 10, True), (10_000, 10, False)],
)
def test_scarce_or_few_labels_take_more_models_beside_the_wide_stack(
    num_train: int, in_channels: int, more: bool
) -> None:
    facts = Facts(num_nodes=90_000, num_train=num_train, in_channels=in_channels)
    assert adapt(facts)["beside"] == ["narrow"] * more + ["mlp", "decoupled"]
    several = replace(facts, several_labels=True)
    assert adapt(several)["beside"] == ["narrow", "convolutions"] * more + ["mlp", "decoupled"]
