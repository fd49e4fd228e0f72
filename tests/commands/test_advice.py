from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lazygnn import commands
from lazygnn.commands.advice import advise, advise_longer
from lazygnn.commands.sharing import resolve_for_ranks
from lazygnn.config import Config
from lazygnn.data.synthetic import block_graph
from lazygnn.graph import Graph
from lazygnn.methods import METHODS, derive, recipes, resolve
from lazygnn.task import Task

# six training labels per feature, and 300 of them near all nodes
SCARCE = block_graph(60, 3, degree=4, in_channels=6, num_classes=3)
PLENTY = block_graph(1000, 3, degree=20, in_channels=2, num_classes=3)


def told(config: Config, graph: Graph) -> list[str]:
    sentences: list[str] = []
    advise(config, graph, sentences.append)
    return sentences


@pytest.mark.parametrize(
    ("values", "warned"),
    [({}, False), ({"epochs": 75}, False), ({"epochs": 74}, True), ({"epochs": 1}, True), ({"epochs": 0}, False)],
    ids=str,
)
def test_less_than_a_quarter_of_the_epochs_of_the_rule_is_warned_of(
    values: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = resolve("lazygnn", "mine", values, graph=SCARCE)
    assert told(config, SCARCE) == []
    lines = [
        f"`epochs` is {config.trainer.epochs}, but the rule takes 300 for this graph; after so few, the model may have "
        "learned little: omit `epochs` for final results"
    ]
    assert caplog.messages == (lines if warned else [])


@pytest.mark.parametrize(
    ("values", "warned"),
    [
        ({"epochs": 100, "warmup_epochs": 100}, True),
        ({"warmup_epochs": 301}, True),
        ({"warmup_epochs": 299}, False),
        ({"epochs": 0, "warmup_epochs": 0}, False),
    ],
    ids=str,
)
def test_a_learning_rate_that_never_reaches_its_value_is_warned_of(
    values: dict[str, Any], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = resolve("lazygnn", "mine", values, graph=SCARCE)
    told(config, SCARCE)
    lines = [
        f"`warmup_epochs` is {values['warmup_epochs']}, but `epochs` is {config.trainer.epochs}, so that the learning "
        "rate never reaches `lr`; choose fewer `warmup_epochs`, or more `epochs`"
    ]
    assert caplog.messages == (lines if warned else [])


@pytest.mark.parametrize(
    ("values", "warning"),
    [
        (
            {},
            "the run keeps `warmup_epochs=4` and `eval_every=1`; for a new run with 400 epochs, the rule sets "
            "`warmup_epochs=20` and `eval_every=8`",
        ),
        (
            {"eval_every": 2},
            "the run keeps `warmup_epochs=4`; for a new run with 400 epochs, the rule sets `warmup_epochs=20`",
        ),
        ({"warmup_epochs": 3, "eval_every": 8}, None),
    ],
    ids=str,
)
def test_values_that_a_longer_run_keeps_are_warned_of(
    values: dict[str, Any], warning: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    before = resolve("lazygnn", "mine", {**values, "epochs": 40, "schedule": "constant"}, graph=SCARCE)
    after = derive(before, {"epochs": 400})
    advise_longer(before, after, SCARCE)
    assert caplog.messages == ([] if warning is None else [warning])
    caplog.clear()
    # a method without a rule has no values that follow from the epochs
    label_propagation = resolve("label-propagation", "mine", graph=SCARCE)
    advise_longer(label_propagation, label_propagation, SCARCE)
    assert caplog.messages == []


@pytest.mark.parametrize("method", list(METHODS))
def test_values_that_the_user_has_not_set_are_not_warned_of(method: str, caplog: pytest.LogCaptureFixture) -> None:
    for graph in (SCARCE, PLENTY):
        for known in (graph, None):
            advise(resolve(method, "mine", graph=known), graph, lambda _: None)
    assert caplog.messages == []


def test_training_in_python_tells_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"epochs": 2, "hidden_channels": 4, "num_blocks": 1}
    config = resolve("lazygnn-deep", "mine", values, graph=PLENTY, device="cpu")

    def times_told(action: Callable[[], object]) -> tuple[int, int]:
        caplog.clear()
        action()
        warnings = sum("`epochs` is 2, but the rule takes 590" in message for message in caplog.messages)
        return warnings, capsys.readouterr().err.count("the rule shows training labels to the model")

    one, several = tmp_path / "one", tmp_path / "several"
    assert times_told(lambda: commands.train(config, one, graph=PLENTY)) == (1, 1)
    assert times_told(lambda: commands.train_seeds(config, 2, several, graph=PLENTY)) == (1, 1)
    assert times_told(lambda: commands.train(config, tmp_path / "quiet", graph=PLENTY, quiet=True)) == (1, 0)
    # what was told at the start is not told again, and few epochs are enough for trained weights
    (one / "result.json").unlink()
    (several / "seed-1").rename(tmp_path / "away")
    for action in (
        lambda: commands.resume(one, trained_on=PLENTY),
        lambda: commands.resume_seeds(several, trained_on=PLENTY),
        lambda: commands.train(config, tmp_path / "tuned", graph=PLENTY, init_from=one),
    ):
        assert times_told(action) == (0, 0)


def test_a_graph_without_edges_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    alone = Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), SCARCE.x)
    bare = replace(SCARCE, adj=alone.adj, degree=alone.degree, name="bare")
    assert told(resolve("lazygnn", "mine", graph=bare), bare) == []
    (line,) = caplog.messages
    assert line.startswith("`bare` has no edges, so that no node sees another, whatever the method;")


def test_a_graph_without_validation_nodes_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    graph = replace(SCARCE, masks={"train": SCARCE.masks["train"]})
    for method, epochs in (("lazygnn", 300), ("label-propagation", 0)):
        assert told(resolve(method, "mine", {"epochs": epochs}, graph=graph), graph) == []
    (line,) = caplog.messages
    assert line == (
        f"`{graph.name}` has no validation nodes, so the weights of the last epoch count, and nothing else is chosen; "
        "add a `val_mask`"
    )


@pytest.mark.parametrize(
    ("kept", "names", "warning"),
    [
        ((0, 1, 2), None, None),
        ((1,), None, "all training nodes of `{}` have class `1`, so every node is predicted to have it; "),
        ((1, 2), None, "no training node of `{}` has class `0`, but nodes of other splits have; it is not learned: "),
        ((0, 2), ("a", "b", "c"), "no training node of `{}` has class `b`, but nodes "),
    ],
)
def test_classes_without_training_nodes_are_warned_of(
    kept: tuple[int, ...], names: tuple[str, ...] | None, warning: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    has = torch.isin(PLENTY.y, torch.tensor(kept))
    graph = replace(PLENTY, masks={**PLENTY.masks, "train": PLENTY.masks["train"] & has}, class_names=names)
    told(resolve("lazygnn", "mine", graph=graph), graph)
    assert len(caplog.messages) == (warning is not None)
    assert all(line.startswith(warning.format(graph.name)) for line in caplog.messages if warning is not None)


@pytest.mark.parametrize(
    ("split", "columns", "warnings"),
    [
        ("train", [], []),
        ("test", [0, 1], []),
        ("train", [1], ["no training node of `{}` has label `b`, so it is not learned; "]),
        ("val", [1], []),
        ("val", [0, 1], ["no validation node of `{}` has any label, so that its F1 score is always 0; "]),
    ],
    ids=str,
)
def test_several_labels_that_nodes_lack_are_warned_of(
    split: str, columns: list[int], warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    y = torch.ones(len(PLENTY.y), 2)
    y[:, columns] = torch.where(PLENTY.masks[split][:, None], 0.0, 1.0)
    graph = replace(PLENTY, y=y, task=Task("multi-label", 2), class_names=("a", "b"))
    told(resolve("lazygnn", "mine", graph=graph), graph)
    assert len(caplog.messages) == len(warnings)
    for line, start in zip(caplog.messages, warnings, strict=True):
        assert line.startswith(start.format(graph.name))


def test_many_classes_without_training_nodes_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    graph = block_graph(120, 12, degree=4, in_channels=6, num_classes=12)
    graph = replace(graph, masks={**graph.masks, "train": graph.masks["train"] & (graph.y > 7)})
    told(resolve("lazygnn", "mine", graph=graph), graph)
    (line,) = caplog.messages
    assert "`0` or `1` or `2` or `3` or `4` or 3 others, but" in line


def test_batches_of_ranks_count_as_for_the_rule(caplog: pytest.LogCaptureFixture) -> None:
    values = {"num_parts": 16}
    taken = resolve_for_ranks("lazygnn", "mine", values, SCARCE, 1).trainer.epochs
    assert taken < 300
    for epochs in (taken // 4 + 1, taken // 4 - 1):
        given = values | {"epochs": epochs}
        told(resolve_for_ranks("lazygnn", "mine", given, SCARCE, 1), SCARCE)
    (line,) = caplog.messages
    assert f"`epochs` is {taken // 4 - 1}, but the rule takes {taken} " in line


@pytest.mark.parametrize(("method", "dataset"), [("label-propagation", "mine"), ("lazygnn", "cora")])
def test_nothing_is_told_where_the_rule_does_not_apply(
    method: str, dataset: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(recipes._SIZES, "cora", (60, 6, 3))
    values = {"epochs": 1}
    assert told(resolve(method, dataset, values, graph=SCARCE), SCARCE) == []
    assert caplog.messages == []


def test_labels_that_the_rule_shows_to_the_model_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    (sentence,) = told(resolve("lazygnn-deep", "mine", graph=PLENTY), PLENTY)
    assert sentence == (
        "the rule shows training labels to the model as input (`label_input=0.5`); `--set label_input=0` trains "
        "without them"
    )
    for method, values, graph in (
        ("lazygnn-deep", {"label_input": 0.0}, PLENTY),
        ("lazygnn-deep", {"label_input": 0.3}, PLENTY),
        ("lazygnn-deep", {}, SCARCE),
        ("lazygnn", {}, PLENTY),
    ):
        assert told(resolve(method, "mine", values, graph=graph), graph) == []
    assert caplog.messages == []
