from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from lazygnn.config import TrainerOptions
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.methods import METHODS, resolve
from lazygnn.methods.base import Facts
from lazygnn.methods.rule import rule

RULED = [name for name, method in METHODS.items() if method.adapt is not None]
SCARCE = Facts(num_nodes=2_708, num_train=140, in_channels=1_433)
PLENTIFUL = Facts(num_nodes=90_000, num_train=60_000, in_channels=100)
LARGE = Facts(num_nodes=2_000_000, num_train=200_000, in_channels=100)


def values_of(method: str, facts: Facts, **values: Any) -> dict[str, Any]:
    return rule(METHODS[method], facts, values)


@pytest.mark.parametrize("facts", [SCARCE, PLENTIFUL, LARGE])
@pytest.mark.parametrize("method", RULED)
def test_every_value_is_an_option_of_the_method_that_passes_its_checks(method: str, facts: Facts) -> None:
    values = values_of(method, facts)
    assert {"epochs", "lr"} <= values.keys()
    config = resolve(method, "mine", values)
    for name, value in values.items():
        owner = config.trainer if name in TrainerOptions.model_fields else config.model
        assert getattr(owner, name) == value


@pytest.mark.parametrize("method", RULED)
def test_validation_chooses_the_threshold_of_several_labels(method: str) -> None:
    assert values_of(method, replace(PLENTIFUL, several_labels=True))["threshold"] == "validation"
    assert "threshold" not in values_of(method, PLENTIFUL)


@pytest.mark.parametrize(
    ("num_val", "chosen"), [(None, None), (0, None), (1, "score-loss"), (99, "score-loss"), (100, None)]
)
def test_few_validation_nodes_choose_by_the_loss_too(num_val: int | None, chosen: str | None) -> None:
    for method in RULED:
        usual = values_of(method, SCARCE).get("criterion")
        assert values_of(method, replace(SCARCE, num_val=num_val)).get("criterion", usual) == (chosen or usual)


def test_validation_nodes_are_counted(block_graph: Graph) -> None:
    assert Facts.of(block_graph).num_val == int(block_graph.masks["val"].sum())
    masks = {split: mask for split, mask in block_graph.masks.items() if split != "val"}
    assert Facts.of(replace(block_graph, masks=masks)).num_val == 0


def test_every_method_that_learns_has_a_rule() -> None:
    assert set(METHODS) - set(RULED) == {"label-propagation"}


@pytest.mark.parametrize(
    ("in_channels", "num_train", "scarcity"), [(10, 1000, 0.1), (100, 1000, 1.0), (5000, 1000, 1.0), (1, 10_000, 0.001)]
)
def test_scarcity_counts_features_per_label_up_to_one(in_channels: int, num_train: int, scarcity: float) -> None:
    assert Facts(10_000, num_train, in_channels).scarcity == pytest.approx(scarcity)


def test_scarce_labels_drop_inputs_and_plentiful_ones_train_deeper_and_longer() -> None:
    scarce, plentiful = (values_of("lazygnn-deep", facts) for facts in (SCARCE, PLENTIFUL))
    assert (scarce["input_dropout"], scarce["num_blocks"], scarce["epochs"]) == (0.5, 2, 300)
    assert (plentiful["input_dropout"], plentiful["num_blocks"], plentiful["epochs"]) == (0.0, 8, 600)
    assert values_of("lazygnn-deep", LARGE)["num_blocks"] == 4


def test_between_the_two_nothing_jumps() -> None:
    labels = [50_000, 40_000, 30_000, 20_000, 15_000, 12_000, 11_000, 10_000]
    found = [values_of("lazygnn-deep", Facts(100_000, number, 1_000)) for number in labels]
    for name, most in {"input_dropout": 0.2, "num_blocks": 2, "epochs": 80}.items():
        values = [each[name] for each in found]
        assert values in (sorted(values), sorted(values, reverse=True))
        assert max(abs(after - before) for before, after in pairwise(values)) <= most


def test_more_batches_take_fewer_epochs_and_a_shorter_warmup() -> None:
    one, ten = values_of("lazygnn", PLENTIFUL), values_of("lazygnn", PLENTIFUL, num_parts=60, parts_per_batch=6)
    assert (one["epochs"], one["warmup_epochs"]) == (600, 20)
    assert (ten["epochs"], ten["warmup_epochs"]) == (190, 2)
    # refused elsewhere
    assert values_of("lazygnn", PLENTIFUL, num_parts="many") == one


def test_batches_of_the_deep_model_take_smaller_updates_and_more_of_them() -> None:
    one, sixteen = (values_of("lazygnn-deep", PLENTIFUL, num_parts=parts) for parts in (1, 16))
    assert (one["epochs"], one["lr"]) == (600, 0.006)
    assert (sixteen["epochs"], sixteen["lr"]) == (300, 0.003)
    # in both cases, updates times learning rate grow with the root of the batches
    other = values_of("lazygnn", PLENTIFUL, num_parts=16)
    assert (other["epochs"], other["lr"]) == (150, 0.01)


@pytest.mark.parametrize("method", RULED)
def test_the_learning_rate_is_larger_where_labels_are_plentiful_and_grows_evenly(method: str) -> None:
    rates = [values_of(method, Facts(100_000, number, 1_000))["lr"] for number in range(10_000, 1_000_000, 10_000)]
    assert rates == sorted(rates)
    assert max(after / before for before, after in pairwise(rates)) < 1.8
    if method != "sgc":  # a linear layer, which learns slowly
        assert (rates[0], rates[-1]) == (0.003, METHODS[method].lr)


@pytest.mark.parametrize(
    ("num_train", "in_channels", "many"), [(10_000, 10, True), (9_999, 10, False), (10_000, 500, False)]
)
def test_labels_are_many_only_if_they_are_plentiful(num_train: int, in_channels: int, many: bool) -> None:
    assert Facts(20_000, num_train, in_channels).many == many


@pytest.mark.parametrize(
    ("method", "dropout"),
    [("gcn", 0.3), ("gcnii", 0.3), ("appnp", 0.3), ("lazygnn-deep", 0.5), ("graphsage", 0.5), ("sign", 0.5)],
)
def test_less_is_dropped_where_labels_are_many_unless_views_stand_side_by_side(method: str, dropout: float) -> None:
    assert values_of(method, PLENTIFUL)["dropout"] == dropout
    for facts in (SCARCE, replace(PLENTIFUL, num_train=5_000)):
        assert values_of(method, facts)["dropout"] == 0.5


def test_gcnii_takes_batch_norm_only_where_labels_are_many() -> None:
    norms = {
        facts: values_of("gcnii", facts)["norm"] for facts in (SCARCE, replace(PLENTIFUL, num_train=5_000), PLENTIFUL)
    }
    assert list(norms.values()) == ["none", "none", "batch"]
    assert values_of("gcn", replace(PLENTIFUL, num_train=5_000))["norm"] == "batch"


def test_a_short_run_rises_for_a_tenth_of_it_and_patience_is_evaluated_often_enough() -> None:
    assert values_of("lazygnn", PLENTIFUL, epochs=30)["warmup_epochs"] == 3
    assert values_of("lazygnn", PLENTIFUL, epochs=3)["warmup_epochs"] == 0
    assert values_of("lazygnn", PLENTIFUL)["eval_every"] == 12
    assert values_of("lazygnn", PLENTIFUL, patience=10)["eval_every"] == 5
    assert values_of("lazygnn", PLENTIFUL, patience=1)["eval_every"] == 1


@pytest.mark.parametrize("number", [30.0, "30", np.int64(30)], ids=["float", "text", "numpy"])
def test_the_rule_reads_numbers_as_options_do(number: Any) -> None:
    assert values_of("lazygnn-deep", PLENTIFUL, epochs=number) == values_of("lazygnn-deep", PLENTIFUL, epochs=30)
    assert values_of("lazygnn-deep", PLENTIFUL, num_parts=number) == values_of("lazygnn-deep", PLENTIFUL, num_parts=30)


@pytest.mark.parametrize("value", [0, -3, 2.5, "many", None, [30]])
def test_the_rule_leaves_values_that_options_refuse_to_their_check(value: Any) -> None:
    assert values_of("lazygnn-deep", PLENTIFUL, num_parts=value) == values_of("lazygnn-deep", PLENTIFUL)


def test_a_large_graph_is_sampled_and_a_small_one_is_not() -> None:
    assert values_of("graphsage", PLENTIFUL)["num_neighbors"] == [-1, -1, -1]
    assert values_of("graphsage", SCARCE)["num_neighbors"] == [-1, -1]
    assert values_of("graphsage", LARGE)["batch_size"] == 8192
    # many small updates
    assert values_of("graphsage", LARGE)["lr"] == 0.003


def test_a_graph_gives_the_defaults_where_there_is_no_recipe(
    block_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_rule = resolve("lazygnn-deep", "mine", graph=block_graph)
    assert by_rule.trainer.epochs == values_of("lazygnn-deep", Facts.of(block_graph))["epochs"]
    assert resolve("lazygnn-deep", "mine", {"epochs": 7}, graph=block_graph).trainer.epochs == 7
    # recipes of the authors come first, unless they are not wanted
    assert resolve("gcn", "unsized", graph=block_graph).trainer.optimizer == "adamw"
    monkeypatch.setattr("lazygnn.methods.recipes._SIZES", {})
    assert resolve("gcn", "cora", graph=block_graph) == resolve("gcn", "cora")
    assert resolve("gcn", "cora", graph=block_graph, use_recipe=False).trainer.optimizer == "adamw"
    assert resolve("label-propagation", "mine", graph=block_graph) == resolve("label-propagation", "mine")


def test_what_is_not_a_graph_is_refused() -> None:
    with pytest.raises(GraphError, match="graph"):
        resolve("gcn", "mine", graph="cora.npz")  # type: ignore[arg-type]
