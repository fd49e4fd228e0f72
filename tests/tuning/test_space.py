from pathlib import Path
from typing import Any

import pytest

from lazygnn.config import Config
from lazygnn.errors import ConfigError
from lazygnn.methods import METHODS, resolve
from lazygnn.tunable import Choices, Range
from lazygnn.tuning.space import (
    PAPER,
    Space,
    find_space,
    left_out,
    nearest_values,
    options_space,
    read_space,
    write_space,
)


@pytest.fixture
def default() -> Config:
    return resolve("lazygnn", "cora")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dataset", ["cora", "default"])
def test_the_ranges_of_a_method_are_valid_and_contain_its_defaults(method: str, dataset: str) -> None:
    values = {"epochs": 0} if method == "label-propagation" else {}
    config = resolve(method, dataset, values)
    space = find_space("options", method, {}, config)
    given = dict(config.trainer) | dict(config.model)
    assert nearest_values(space, config) == {name: pytest.approx(given[name]) for name in space}
    assert left_out(space, config) == {}
    assert ("lr" in space) == (method != "label-propagation")


def test_what_the_user_sets_is_not_searched(default: Config) -> None:
    space = find_space("options", "lazygnn", {"lr": 0.1, "dropout": 0.2}, default)
    assert "alpha" in space
    assert not {"lr", "dropout"} & space.keys()
    with pytest.raises(ConfigError, match=r"nothing is left to search for `lazygnn`: set fewer options, or choose"):
        find_space("paper", "lazygnn", dict.fromkeys(PAPER, 1), default)


def test_the_space_of_the_paper_is_that_of_its_section(default: Config) -> None:
    space = find_space("paper", "lazygnn", {}, default)
    assert {name: len(values.values) for name, values in space.items() if isinstance(values, Choices)} == {
        "lr": 3,
        "weight_decay": 3,
        "dropout": 4,
        "num_layers": 2,
        "mlp_layers": 2,
        "hidden_channels": 2,
        "alpha": 5,
    }
    # the recipe has other widths and depths
    assert "hidden_channels" not in nearest_values(space, default)
    assert nearest_values(space, default)["alpha"] == 0.1
    with pytest.raises(ConfigError, match=r"method `gcn` has no option `mlp_layers` of this space; .*: mlp, appnp"):
        find_space("paper", "gcn", {}, resolve("gcn", "cora"))


def test_a_default_outside_of_the_stated_values_is_added() -> None:
    config = resolve("gcn", "cora", {"hidden_channels": 24, "lr": 0.5, "num_layers": 7})
    space = options_space("gcn", config)
    assert space["hidden_channels"] == Choices((16, 32, 64, 128, 256, 512, 24))
    assert space["lr"] == Range(1e-4, 0.5, log=True)
    assert space["num_layers"] == Range(1, 7)


def test_a_file_has_lists_and_ranges(tmp_path: Path, default: Config) -> None:
    file = tmp_path / "space.toml"
    file.write_text(
        "alpha = [0.1, 0.2]\nlr = { low = 0.001, high = 0.1, log = true }\nmlp_layers = {low = 1, high = 3}\n"
    )
    space = find_space(str(file), "lazygnn", {}, default)
    assert space == {
        "alpha": Choices((0.1, 0.2)),
        "lr": Range(0.001, 0.1, log=True),
        "mlp_layers": Range(1, 3),
    }
    assert read_space(write_space(space), "here") == space


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("beta = { low = 0, high = 1 }", Range(0.0, 1.0)),
        ("beta = { low = 0, high = 1, step = 0.25 }", Range(0.0, 1.0, step=0.25)),
        ("clip_norm = { low = 1, high = 100, log = true }", Range(1.0, 100.0, log=True)),
        ("num_layers = { low = 1.0, high = 3.0 }", Range(1, 3)),
        ("patience = { low = 10, high = 30, step = 10.0 }", Range(10, 30, step=10)),
    ],
)
def test_a_range_has_numbers_of_the_type_that_its_option_takes(
    tmp_path: Path, default: Config, content: str, expected: Range
) -> None:
    (tmp_path / "space.toml").write_text(content)
    (found,) = find_space(str(tmp_path / "space.toml"), "lazygnn", {}, default).values()
    assert isinstance(found, Range)
    for name, value in vars(expected).items():
        assert getattr(found, name) == value
        assert type(getattr(found, name)) is type(value)


@pytest.mark.parametrize(
    ("values", "given", "expected"),
    [
        (Range(8, 20, step=8), 64, 16),
        (Range(8, 20, step=8), 17, 16),
        (Range(8, 20, step=8), 1, 8),
        (Range(0.1, 1.0, step=0.1), 2.0, 1.0),
        (Range(0.0, 0.83, step=0.05), 0.83, 0.8),
        (Range(0.0, 0.8, step=0.05), 0.42, 0.4),
        (Range(1, 4), 9, 4),
        (Range(0.0, 0.5), 0.7, 0.5),
    ],
)
def test_the_nearest_number_is_one_of_the_range(values: Range, given: float, expected: float) -> None:
    name = "hidden_channels" if isinstance(expected, int) else "clip_norm"
    found = nearest_values({name: values}, resolve("lazygnn", "cora", {name: given}))
    assert found == {name: pytest.approx(expected, rel=1e-12)}


def test_values_that_a_space_does_not_contain_are_named(default: Config) -> None:
    config = resolve("lazygnn", "cora", {"dropout": 0.35, "alpha": 0.3, "hidden_channels": 64, "mlp_layers": 2})
    space: Space = {
        "dropout": Range(0.0, 0.8, step=0.05),
        "alpha": Range(0.0, 0.8, step=0.5),
        "hidden_channels": Choices((64, 128)),
        "mlp_layers": Choices((3, 4)),
        "clip_norm": Range(0.5, 2.0),
    }
    assert left_out(space, config) == {"alpha": 0.3, "mlp_layers": 2, "clip_norm": None}


def test_a_range_ends_with_its_last_step(tmp_path: Path, default: Config) -> None:
    (tmp_path / "space.toml").write_text(
        "hidden_channels = { low = 8, high = 20, step = 8 }\ndropout = { low = 0.0, high = 0.83, step = 0.05 }\n"
    )
    space = find_space(str(tmp_path / "space.toml"), "lazygnn", {}, default)
    assert space == {"hidden_channels": Range(8, 16, step=8), "dropout": Range(0.0, 0.8, step=0.05)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"lr": 0.1}, r"`file` has 0.1 for `lr`; give a list of values, or a table such as `{ low = 0.001, high"),
        ({"lr": []}, r"`file` has \[\] for `lr`"),
        ({"lr": {"lowest": 1}}, r"`file` has {'lowest': 1} for `lr`"),
    ],
)
def test_a_file_of_another_form_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_space(content, "file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("lr = { low = 0.1, high = 0.001 }", r"the range of `lr` is 0.1 to 0.001; give a `low` below `high`"),
        (
            "lr = { low = 0.0, high = 0.1, log = true }",
            r"the range of `lr` starts at 0.0; with `log`, give a `low`",
        ),
        ("lr = { low = nan, high = 0.1 }", r"the range of `lr` is nan to 0.1; give a `low` below `high`"),
        ("lr = { low = 0.1, high = inf }", r"the range of `lr` is 0.1 to inf; give a `low` below `high`"),
        ('lr = { low = "a", high = "b" }', r"`low` in the range of `lr` is 'a'; give a number"),
        ("lr = { low = 0.1, high = true }", r"`high` in the range of `lr` is True; give a number"),
        ("lr = { low = 0.1, high = 0.2, log = 1 }", r"`log` in the range of `lr` is 1; give true or false"),
        (
            "lr = { low = 0.01, high = 0.1, step = 0.01, log = true }",
            r"the range of `lr` has `log` and a `step` of 0.01; omit one of them",
        ),
        (
            "dropout = { low = 0.0, high = 0.5, step = 0 }",
            r"`step` in the range of `dropout` is 0; give a number above 0, or omit it",
        ),
        ('lr = { low = 0.1, high = 0.2, step = "x" }', r"`step` in the range of `lr` is 'x'; give a number above 0"),
        ("lr = { low = 0.1, high = 0.2, step = inf }", r"`step` in the range of `lr` is inf; give a number above 0"),
        ("lr = { low = 0.1, high = 0.2, step = 1e-300 }", r"`step` .* `lr` is 1e-300, too small for it; give a larger"),
        ("lr = { low = 0.1, high = 0.2, steps = 2 }", r"space.toml` has {.*} for `lr`; give a list of values, or a"),
        ("lr = { low = 0.1 }", r"space.toml` has {'low': 0.1} for `lr`; give a list of values, or a table such as"),
        ("alpha = { low = 0.5, high = 2.0 }", r"option `alpha` is 2.0: input should be less than or equal to 1"),
        (
            "num_layers = { low = 1, high = 3, step = 0.5 }",
            r"`step` in the range of `num_layers` is 0.5; give a whole number",
        ),
        ("num_layers = { low = 1.5, high = 3 }", r"option `num_layers` is 1.5: input should be a valid integer"),
        (
            "keep_batches = { low = 0, high = 1 }",
            r"option `keep_batches` takes no range of numbers; give a list of true or false",
        ),
        ("alpha = [0.1, 2.0]", r"option `alpha` is 2.0: input should be less than or equal to 1"),
        (
            'metric = ["accuracy", "macro-f1"]',
            r"`metric` cannot be searched: trials are compared by its scores; give one with `--set`, such as",
        ),
        ("alhpa = [0.1]", r"unknown option `alhpa`; did you mean `alpha`\?"),
    ],
)
def test_values_that_an_option_does_not_take_are_refused(
    tmp_path: Path, default: Config, content: str, message: str
) -> None:
    (tmp_path / "space.toml").write_text(content)
    with pytest.raises(ConfigError, match=message):
        find_space(str(tmp_path / "space.toml"), "lazygnn", {}, default)


def test_values_that_need_another_option_can_be_searched(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text('halo = ["frozen", "none"]\npartition = ["random", "contiguous"]\n')
    for fixed in ({"num_parts": 4}, {}):
        space = find_space(str(tmp_path / "space.toml"), "lazygnn", fixed, resolve("lazygnn", "cora", fixed))
        assert space == {"halo": Choices(("frozen", "none")), "partition": Choices(("random", "contiguous"))}


def test_a_metric_that_the_user_sets_stays(tmp_path: Path, default: Config) -> None:
    (tmp_path / "space.toml").write_text('metric = ["accuracy", "macro-f1"]\nalpha = [0.1, 0.2]\n')
    space = find_space(str(tmp_path / "space.toml"), "lazygnn", {"metric": "accuracy"}, default)
    assert space == {"alpha": Choices((0.1, 0.2))}


def test_an_unknown_space_is_refused(default: Config) -> None:
    with pytest.raises(ConfigError, match=r"`space` is `papr`; choose options, paper or a file that ends in .toml"):
        find_space("papr", "lazygnn", {}, default)
