import json
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import Field, PositiveInt, ValidationError

from lazygnn.config import (
    Options,
    TrainerOptions,
    allowed,
    parse_assignments,
    read_options,
    read_toml,
    split_options,
)
from lazygnn.errors import ConfigError
from lazygnn.methods import derive, read_config, resolve


class Shape(Options):
    width: int = Field(3, ge=1, description="how wide")
    name: str | None = Field(None, description="what it is called")


GROUPS: dict[str, type[Options]] = {"trainer": TrainerOptions, "shape": Shape}


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("label-propagation", {"lr": 0.5}, "`lr` is 0.5, but `epochs` is 0, so that nothing is learned; omit `lr`"),
        ("label-propagation", {"patience": 9}, "`patience` is 9, but `epochs` is 0, so that nothing is learned; omit"),
        ("gcn", {"epochs": 0, "schedule": "cosine"}, "`schedule` is cosine, but `epochs` is 0, so that nothing is"),
        (
            "gcn",
            {"rest_weight_decay": 0.1},
            "`rest_weight_decay` is 0.1, but `decay_layers` is empty, so that `weight_decay` applies to all layers; "
            "set `decay_layers`, or omit `rest_weight_decay`",
        ),
    ],
)
def test_an_option_of_training_without_effect_is_refused(method: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(method, "some", values)
    (name,) = values.keys() - {"epochs"}
    with pytest.raises(ConfigError, match=f"`{name}`"):
        derive(resolve(method, "some"), values)


def test_an_option_of_training_with_an_effect_is_taken() -> None:
    assert resolve("gcn", "some", {"rest_weight_decay": 0.1, "decay_layers": 1}).trainer.decay_layers == 1
    # the recipe sets what a run without epochs does not need
    assert resolve("gcn", "cora", {"epochs": 0}).trainer.decay_layers == 1
    assert resolve("label-propagation", "some", {"epochs": 0, "lr": 0.01, "metric": "macro-f1"}).trainer.lr == 0.01


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("beside=[mlp, decoupled]", ["mlp", "decoupled"]),
        ("alpha=0.2", 0.2),
        ("alpha=1e-3", 1e-3),
        ("alpha = 0.2 ", 0.2),
        ("epochs=50", 50),
        ("normalize_features=true", True),
        ("normalize_features=false", False),
        ("patience=none", "none"),
        ("patience=", None),
        ("start=drift", "drift"),
        ("start='drift'", "drift"),
        ("metric=micro-f1", "micro-f1"),
        ("name=a=b", "a=b"),
        ("sizes=[1, 2]", [1, 2]),
    ],
)
def test_an_assignment_is_a_toml_value_or_a_string(text: str, value: Any) -> None:
    ((key, parsed),) = parse_assignments([text]).items()
    assert key == text.partition("=")[0].strip()
    assert parsed == value
    assert type(parsed) is type(value)


def test_the_last_of_several_assignments_counts() -> None:
    assert parse_assignments(["a=1", "b=2", "a=3"]) == {"a": 3, "b": 2}
    assert parse_assignments([]) == {}


@pytest.mark.parametrize("text", ["alpha", "", "=3", " =3"])
def test_text_without_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"`{text}` is not of the form key=value"):
        parse_assignments([text])


def test_a_toml_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text('epochs = 3\nstart = "mix"  # a comment\n')
    assert read_toml(path) == {"epochs": 3, "start": "mix"}


@pytest.mark.parametrize("content", [b"epochs: 3", b"epochs = ", b"a = 1\na = 2", b"\xff\xfe\x00"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "options.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"cannot read the options in `.*options.toml`: ."):
        read_toml(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no file `.*gone.toml`; give the path of a TOML file of options$"):
        read_options(tmp_path / "gone.toml")


@pytest.mark.parametrize("content", ["[model]\nalpha = 0.2\n", "epochs = 3\n[model]\n", "model.alpha = 0.2\n"])
def test_a_file_of_options_has_no_tables(tmp_path: Path, content: str) -> None:
    path = tmp_path / "options.toml"
    path.write_text(content)
    with pytest.raises(
        ConfigError,
        match=r"options.toml` has a table `model`; a file of options has no tables: remove the line `\[model\]`",
    ):
        read_options(path)
    path.write_text("epochs = 3\nsizes = [3, 4]\n")
    assert read_options(path) == {"epochs": 3, "sizes": [3, 4]}


def test_options_are_assigned_to_the_groups_that_have_them() -> None:
    groups = split_options({"lr": 0.5, "width": 7, "name": None}, GROUPS)
    assert groups == {"trainer": TrainerOptions(lr=0.5), "shape": Shape(width=7)}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("alhpa", "alpha"), ("epoch", "epochs"), ("hidden", "hidden_channels"), ("weight-decay", "weight_decay")],
)
def test_an_unknown_option_suggests_the_nearest_one(name: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option `{name}`; did you mean `{nearest}`\\?"):
        resolve("lazygnn", "cora", {name: 1})


def test_an_option_like_no_other_lists_them_all() -> None:
    with pytest.raises(ConfigError, match=r"unknown option `zzz`; choose one of: .*, clip_norm, .*, width") as error:
        split_options({"zzz": 1}, GROUPS)
    for group in GROUPS.values():
        assert all(name in str(error.value) for name in group.model_fields)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("alpha", 0, r"option `alpha` is 0: input should be greater than 0"),
        ("alpha", 1.5, r"option `alpha` is 1.5: input should be less than or equal to 1"),
        ("dropout", 1.0, r"option `dropout` is 1.0: input should be less than 1"),
        ("epochs", True, r"option `epochs` is True: give integer >= 0"),
        ("lr", False, r"option `lr` is False: give number > 0"),
        ("patience", True, r"option `patience` is True: give integer >= 1 or none"),
        ("epochs", 1.5, r"option `epochs` is 1.5: input should be a valid integer"),
        ("epochs", -1, r"option `epochs` is -1: input should be greater than or equal to 0"),
        ("epochs", "many", r"option `epochs` is 'many': input should be a valid integer"),
        ("start", "warm", r"option `start` is 'warm': input should be 'drift' or 'mix'"),
        ("optimizer", "sgd", r"option `optimizer` is 'sgd': input should be 'adam' or 'adamw'"),
        ("lr", float("inf"), r"option `lr` is inf: input should be a finite number"),
        ("lr", float("nan"), r"option `lr` is nan: input should be a finite number"),
        ("lr", None, r"option `lr` is None: input should be a valid number"),
        ("normalize_features", "perhaps", r"option `normalize_features` is 'perhaps': input should be a valid bool"),
        ("num_neighbors", 5, r"option `num_neighbors` is 5: input should be a valid list, in square brackets"),
        ("num_layers", 0, r"option `num_layers` is 0: input should be greater than or equal to 1"),
        ("threshold", 1, r"option `threshold` is 1: input should be less than 1, or input should be 'validation'"),
    ],
)
def test_an_impossible_value_is_named_with_its_option(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve("lazygnn", "cora", {name: value})


def test_the_run_itself_is_checked_too() -> None:
    with pytest.raises(ConfigError, match=r"option `seed` is -1: input should be greater than or equal to 0"):
        resolve("lazygnn", "cora", {}, seed=-1)


def test_options_are_frozen_and_closed() -> None:
    options = TrainerOptions(lr=0.5)
    with pytest.raises(ValidationError, match="frozen"):
        options.lr = 1.0  # type: ignore[misc]
    # `self` is a name like any other
    for name in ("color", "self", "epoch"):
        with pytest.raises(ConfigError, match=f"^unknown option `{name}`; ") as stop:
            TrainerOptions(**{name: 3})
    assert str(stop.value).endswith("did you mean `epochs`?")


def test_an_option_as_an_argument_of_resolve_is_told_where_it_belongs() -> None:
    with pytest.raises(ConfigError, match=r"`epochs` is no argument of `resolve`; .* in `values`: `\{\"epochs\": 5\}`"):
        resolve("lazygnn", "cora", epochs=5)


def test_the_record_of_a_configuration_reads_back() -> None:
    config = resolve("lazygnn", "cora", {"alpha": 0.3, "patience": None}, seed=3, root="somewhere")
    record = json.loads(config.record())
    assert (record["seed"], record["root"], record["model"]["alpha"]) == (3, "somewhere", 0.3)
    assert record["trainer"]["patience"] is None
    assert read_config(record) == config


def test_a_record_can_hold_what_was_chosen() -> None:
    config = resolve("lazygnn", "cora", {"metric": "auto"})
    chosen = {"device": "cpu", "metric": "accuracy", "response": "fitted", "not": "an option"}
    record, plain = json.loads(config.record(chosen)), json.loads(config.record())
    assert (record["device"], record["trainer"]["metric"], record["model"]["response"]) == ("cpu", "accuracy", "fitted")
    assert (plain["device"], plain["trainer"]["metric"], plain["model"]["response"]) == ("auto",) * 3
    assert record.keys() == plain.keys()


class Bounded(Options):
    any: str = "x"
    count: int = Field(1, ge=1)
    share: float = Field(0.5, gt=0, le=1)
    perhaps: float | None = Field(None, lt=2)
    choice: Literal["a", "b"] = "a"
    flag: bool = True
    several: list[Literal[-1] | PositiveInt] = Field([1])
    either: Annotated[float, Field(gt=0, lt=1)] | Literal["none of them"] = 0.5


def test_accepted_values_are_described() -> None:
    assert {name: allowed(field) for name, field in Bounded.model_fields.items()} == {
        "any": "text",
        "count": "integer >= 1",
        "share": "number > 0 and <= 1",
        "perhaps": "number < 2 or none",
        "choice": "a or b",
        "flag": "true or false",
        "several": "list of -1 or integer > 0",
        "either": "number > 0 and < 1 or none of them",
    }


def test_none_empties_an_option_unless_it_is_one_of_its_values() -> None:
    config = resolve("lazygnn", "wordnet-small", {"num_parts": 4, "norm": "none", "halo": "none", "patience": "none"})
    options = config.model.model_dump()
    assert (options["norm"], options["halo"], config.trainer.patience) == ("none", "none", None)


@pytest.mark.parametrize(("name", "value"), [("seed", 3), ("device", "cpu"), ("root", "data")])
def test_settings_of_a_run_are_not_options(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"`{name}` belongs to a run; give it as `--{name} {value}`"):
        resolve("lazygnn", "wordnet-small", {name: value})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": np.ones(3)}, r"option `epochs` is array\(\[1., 1., 1.\]\): input should be a valid integer"),
        ({"epochs": 2**64}, "option `epochs` has 65 bits; give an integer of at most 63"),
        ({3: 1}, "`option` is 3, of type int; name options by text"),
        ({"lr": "x" * 5000}, r"option `lr` is 'x{199}\.\.\.: input should be a valid number"),
    ],
    ids=["array", "integer", "name", "text"],
)
def test_values_of_any_kind_are_refused_in_words(values: dict[Any, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve("mlp", "mine", values)


def test_a_seed_has_at_most_63_bits() -> None:
    assert resolve("mlp", "mine", seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(ConfigError, match="option `seed` has 65 bits; give an integer of at most 63"):
        resolve("mlp", "mine", seed=2**64)


@pytest.mark.parametrize("text", ["a=" + "[" * 5000, "a=0x" + "f" * 5000])
def test_a_value_without_end_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot read the value of `a`: "):
        parse_assignments([text])
