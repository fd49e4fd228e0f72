from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import torch

from lazygnn.config import TrainerOptions, read_toml
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import (
    METHODS,
    build,
    derive,
    find_method,
    follows_rule,
    methods_with,
    read_config,
    recipe,
    recipe_for,
    recipe_names,
    recipes,
    resolve,
)

RECIPES = sorted(str(file.name) for file in (resources.files("lazygnn") / "recipes").iterdir())
TABLES = [(method, name) for method in METHODS for name in ["default", *recipe_names(method)]]


def test_every_recipe_file_belongs_to_a_method() -> None:
    assert sorted(f"{method}.toml" for method in METHODS) == RECIPES


@pytest.mark.parametrize(("method", "name"), TABLES)
def test_every_recipe_resolves_for_its_method(method: str, name: str) -> None:
    table = recipe(method, name)
    assert isinstance(table, dict)
    config = resolve(method, name, {})
    for option, value in table.items():
        group = config.trainer if option in TrainerOptions.model_fields else config.model
        assert getattr(group, option) == value


@pytest.mark.parametrize("method", list(METHODS))
def test_every_option_has_a_help_text(method: str) -> None:
    fields = TrainerOptions.model_fields | find_method(method).options.model_fields
    assert not [name for name, field in fields.items() if not field.description]
    assert METHODS[method].summary


def test_no_option_belongs_to_both_trainer_and_method() -> None:
    for method in METHODS.values():
        assert not TrainerOptions.model_fields.keys() & method.options.model_fields.keys()


def test_a_recipe_belongs_to_a_data_set_and_not_to_the_name_of_a_file(
    block_graph: Graph, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_rule = resolve("lazygnn", "mine", graph=block_graph)
    assert not caplog.records
    for dataset in ("some/where/cora.npz", "cora"):
        caplog.clear()
        found = resolve("lazygnn", dataset, graph=block_graph)
        assert (found.trainer, found.model) == (by_rule.trainer, by_rule.model)
        (record,) = caplog.records
        assert record.message == (
            f"`{dataset}` has the name of the data set cora, but 60 nodes, 3 features and 3 outputs instead of "
            "2,708 nodes, 1,433 features and 7 outputs; its recipe is not used"
        )
    caplog.clear()
    resolve("lazygnn", "cora", graph=block_graph, use_recipe=False)
    for sizes in ((60, 3, 3), (60, None, 3)):
        monkeypatch.setitem(recipes._SIZES, "cora", sizes)
        assert recipe("lazygnn", "cora.npz", graph=block_graph) == recipe("lazygnn", "cora")
        assert resolve("lazygnn", "cora", graph=block_graph).model == resolve("lazygnn", "cora").model
    assert not caplog.records


def test_the_rule_is_followed_by_methods_that_have_one_on_graphs_without_a_recipe(
    block_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert follows_rule("lazygnn", "mine", block_graph)
    assert follows_rule("lazygnn", "cora", block_graph)
    assert not follows_rule("label-propagation", "mine", block_graph)
    monkeypatch.setitem(recipes._SIZES, "cora", (60, 3, 3))
    assert not follows_rule("lazygnn", "cora", block_graph)


def test_the_size_of_every_data_set_with_a_recipe_is_known() -> None:
    assert recipes._SIZES.keys() == {name for _, name in TABLES} - {"default"}


def test_a_recipe_is_found_by_name_and_by_the_stem_of_a_file() -> None:
    tables = read_toml(Path(str(resources.files("lazygnn") / "recipes" / "appnp.toml")))
    assert recipe("appnp", "cora") == tables["cora"] == recipe("appnp", "some/where/cora.npz")
    assert recipe("appnp", "unheard-of") == tables["default"]
    found = [recipe_for("appnp", name) for name in ("cora", "some/where/cora.npz", "unheard-of", "default")]
    assert found == ["cora", "cora", "default", "default"]
    assert "default" not in recipe_names("appnp")


def test_values_override_the_recipe_and_the_recipe_overrides_defaults() -> None:
    config = resolve("appnp", "cora", {"alpha": 0.5})
    assert config.model.model_dump()["alpha"] == 0.5
    assert config.trainer.weight_decay == recipe("appnp", "cora")["weight_decay"] != TrainerOptions().weight_decay
    assert config.trainer.eval_every == TrainerOptions().eval_every


def test_an_unknown_method_names_the_nearest_or_all() -> None:
    with pytest.raises(ConfigError, match=r"unknown method `lazygn`; did you mean `lazygnn`\?"):
        resolve("lazygn", "cora", {})
    with pytest.raises(ConfigError, match=r"unknown method `GCN`; did you mean `gcn`\?"):
        resolve("GCN", "cora", {})
    with pytest.raises(ConfigError, match=r"unknown method `xyz`; choose one of: mlp, appnp"):
        recipe("xyz", "cora")
    with pytest.raises(
        ConfigError, match=r"unknown method `xyz`; choose one of: mlp, appnp, lazygnn, lazygnn-deep, lazygnn-paper"
    ):
        resolve("xyz", "cora", {})


def test_an_option_of_other_methods_lists_them() -> None:
    owners = (
        "lazygnn, lazygnn-deep, lazygnn-paper, gcn-gas, gcn-graphfm, gcn-lmc, gcnii-gas, appnp-gas, cluster-gcn, vq-gnn"
    )
    assert ", ".join(methods_with("num_parts")) == owners
    with pytest.raises(
        ConfigError, match=f"^method `gcn` has no option `num_parts`; methods that accept it: {owners}$"
    ):
        resolve("gcn", "cora", {"num_parts": 4})


def test_all_methods_accept_an_option_of_training_and_none_a_misspelled_one() -> None:
    assert methods_with("epochs") == list(METHODS)
    assert methods_with("epoch") == []
    with pytest.raises(ConfigError, match=r"unknown option `num_layer`; did you mean `num_layers`\?"):
        resolve("gcn", "cora", {"num_layer": 4})


def test_values_may_be_omitted_and_a_data_set_may_be_a_path() -> None:
    assert resolve("appnp", "cora") == resolve("appnp", "cora", {})
    assert resolve("appnp", Path("some/cora.npz")) == resolve("appnp", "some/cora.npz", {})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["mlp"], "cora"), r"unknown method `\['mlp'\]`; choose one of: mlp"),
        (("mlp", torch.ones(2)), r"`dataset` is of type Tensor and shape \(2,\); give a name or a path"),
        (("mlp", "cora", ["lr=1"]), r"`values` is \['lr=1'\], of type list; give options by name, such as"),
    ],
)
def test_what_cannot_be_resolved_is_named(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(*arguments)


@pytest.mark.parametrize(
    ("method", "values"),
    [
        # the recipe has several parts per batch, which full batch does not need
        ("cluster-gcn", {"num_parts": 1}),
        ("lazygnn", {"parts_per_batch": 1}),
        ("lazygnn-paper", {"level": 0.9, "start": "drift"}),
        ("lazygnn", {"halo": "none", "halo_gradients": False, "num_parts": 4}),
        ("lazygnn", {"halo": "frozen", "partition": "auto", "keep_batches": True, "halo_gradients": False}),
        ("lazygnn-paper", {"halo": "paper"}),
        # the recipe partitions the graph
        ("gcn-gas", {"partition": "random", "keep_batches": False}),
    ],
)
def test_values_of_a_recipe_or_a_default_are_not_refused(method: str, values: dict[str, Any]) -> None:
    options = resolve(method, "cora", values).model.model_dump()
    assert {name: options[name] for name in values} == values


@pytest.mark.parametrize("method", list(METHODS))
def test_a_stored_configuration_reads_back(method: str) -> None:
    config = resolve(method, "cora", {"checkpoint_minutes": 0.125}, seed=3, root="somewhere")
    assert read_config(config.model_dump()) == config


def test_a_renamed_option_is_refused_by_its_new_name_and_read_from_a_stored_configuration() -> None:
    with pytest.raises(ConfigError, match=r"^option `fanout` is now `num_neighbors`; use the new name$"):
        resolve("graphsage", "cora", {"fanout": [3]})
    config = resolve("graphsage", "cora", {"num_neighbors": [3, 4]})
    record = config.model_dump()
    record["model"]["fanout"] = record["model"].pop("num_neighbors")
    assert read_config(record) == config


def test_options_left_empty_stay_empty_in_a_configuration(block_graph: Any) -> None:
    config = resolve("lazygnn", "block")
    build(config, block_graph)
    stored = config.model_dump()["model"]
    assert (stored["beta"], stored["level"], stored["label_step"], stored["edges"]) == (None,) * 4
    assert stored["response"] == "auto"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "gone"}, "unknown method `gone`"),
        ({"model": {"alhpa": 1}}, "unknown option `alhpa`; did you mean `alpha`"),
        ({"trainer": {"epochs": -1}}, "option `epochs` is -1: input should be greater"),
        ({"model": [1]}, r"option `model` is \[1\]: input should be an instance of options"),
        ({"trainer": None}, "option `trainer` is None: input should be a valid dictionary"),
        ({"color": "red"}, "unknown option `color`; choose one of: method"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_named(change: dict[str, Any], message: str) -> None:
    record = resolve("appnp", "cora").model_dump()
    with pytest.raises(ConfigError, match=message):
        read_config(record | change)


@pytest.mark.parametrize("missing", ["method", "dataset", "trainer", "model"])
def test_a_configuration_without_one_of_its_parts_is_refused(missing: str) -> None:
    record = resolve("appnp", "cora").model_dump()
    del record[missing]
    with pytest.raises(ConfigError, match=f"option `{missing}` is .*: field required"):
        read_config(record)


def test_a_derived_configuration_differs_in_the_given_values_alone() -> None:
    config = resolve("lazygnn", "cora", {"alpha": 0.3}, seed=4)
    derived = derive(config, {"lr": 0.5, "patience": "none"}, dataset="other")
    assert (derived.trainer.lr, derived.trainer.patience, derived.dataset, derived.seed) == (0.5, None, "other", 4)
    assert derived.model == config.model
    other = derive(config, {}, method="appnp")
    assert (other.method, dict(other.model)["alpha"], dict(other.model)["dropout"]) == ("appnp", 0.3, 0.8)
    with pytest.raises(ConfigError, match="method `gcn` has no option `alpha`"):
        derive(config, {"alpha": 0.1}, method="gcn")
    with pytest.raises(ConfigError, match="`parts_per_batch` is 4, but `num_parts` is 1"):
        derive(config, {"parts_per_batch": 4})
