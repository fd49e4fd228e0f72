"""Methods of other packages: distributions in a folder on `sys.path`, as an installer would leave them."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lazygnn import commands
from lazygnn.commands.listing import list_methods, list_options
from lazygnn.errors import ConfigError
from lazygnn.methods import find_method, methods_with, plugin_packages, plugins, recipe_names, resolve

Install = Callable[..., None]

CODE = dedent(
    '''
    """A method that a user's own package provides."""

    from pydantic import Field

    from lazygnn.loader import FullLoader
    from lazygnn.methods.base import Method, MethodOptions
    from lazygnn.models import GCN


    class ShallowOptions(MethodOptions):
        hidden_channels: int = Field(8, ge=1, description="width of the hidden layer")
        depth: int = Field(2, ge=1, description="number of layers")


    def make_model(options, graph, place):
        return GCN(
            graph.in_channels, options.hidden_channels, graph.task.num_outputs, num_layers=options.depth
        )


    def make_loader(options, cut, place):
        return FullLoader(cut.graph, options.depth)


    METHOD = Method("two layers", "their own paper", ShallowOptions, make_model, make_loader)
    '''
)
RECIPE = "[default]\nlr = 0.03\n\n[block]\nlr = 0.02\nhidden_channels = 16\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution: a module, its recipe, and the entry point."""
    monkeypatch.setattr(plugins, "_loaded", {})
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install(package: str, name: str, code: str = CODE, recipe: str | None = None) -> None:
        monkeypatch.delitem(sys.modules, package, raising=False)
        (site / f"{package}.py").write_text(code)
        if recipe is not None:
            (site / f"{name}.toml").write_text(recipe)
        info = site / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[lazygnn.methods]\n{name} = {package}:METHOD\n")

    return install


def listed() -> str:
    file = io.StringIO()
    list_methods(Console(file=file, width=400))
    return file.getvalue()


def test_a_method_of_another_package_trains_evaluates_and_predicts(
    install: Install, block_arrays: dict[str, Any], tmp_path: Path
) -> None:
    install("theirs", "shallow", recipe=RECIPE)
    np.savez(tmp_path / "block.npz", **block_arrays)
    config = resolve("shallow", tmp_path / "block.npz", {"epochs": 20, "depth": 2}, device="cpu")
    assert (config.trainer.lr, config.model.hidden_channels) == (0.02, 16)  # type: ignore[attr-defined]
    result = commands.train(config, tmp_path / "run", quiet=True)
    assert result["test"] > 0.7
    assert commands.evaluate_run(tmp_path / "run", device="cpu")["test"] == result["test"]
    assert commands.predict_run(tmp_path / "run", device="cpu")[0].shape == (60, 3)


def test_a_package_is_imported_when_its_method_is_used(install: Install) -> None:
    install("theirs", "shallow")
    assert plugin_packages() == {"shallow": ["theirs"]}
    resolve("gcn", "block")
    assert "theirs" not in sys.modules
    assert find_method("shallow").summary == "two layers"
    assert "theirs" in sys.modules
    assert find_method("shallow") is find_method("shallow")
    assert methods_with("depth") == ["shallow"]


def test_recipes_are_in_a_file_beside_the_module(install: Install) -> None:
    install("theirs", "shallow", recipe=RECIPE)
    install("plain", "bare")
    assert recipe_names("shallow") == ["block"]
    assert resolve("shallow", "other").trainer.lr == 0.03
    assert recipe_names("bare") == []
    assert resolve("bare", "block").trainer.lr == 0.01


def test_methods_are_listed_with_their_package_and_their_options(install: Install) -> None:
    install("theirs", "shallow", recipe=RECIPE)
    assert "two layers (their own paper), from the package theirs" in listed()
    file = io.StringIO()
    list_options("shallow", "block", None, Console(file=file, width=200))
    assert "recipe for block" in file.getvalue()
    assert "width of the hidden layer" in file.getvalue()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "import not_installed_here",
            "method `bad` of the package `broken` cannot be loaded: ModuleNotFoundError: "
            "No module named 'not_installed_here'; upgrade or uninstall `broken`",
        ),
        (
            "METHOD = 3",
            "`broken:METHOD` is 3, of type int; the package `broken` must name a `lazygnn.methods.Method`",
        ),
    ],
    ids=["import", "type"],
)
def test_a_broken_package_is_named_and_leaves_the_others(install: Install, code: str, message: str) -> None:
    install("broken", "bad", code)
    install("theirs", "shallow")
    with pytest.raises(ConfigError) as caught:
        find_method("bad")
    assert str(caught.value) == message
    assert find_method("shallow").summary == "two layers"
    assert find_method("gcn").summary in listed()
    assert f"not usable: {message}" in listed()


def test_a_name_is_taken_once(install: Install) -> None:
    install("first", "shallow")
    install("second", "shallow")
    with pytest.raises(ConfigError, match="each have a method `shallow`; uninstall one of them") as caught:
        find_method("shallow")
    assert "`first`" in str(caught.value)
    assert "`second`" in str(caught.value)


def test_a_method_of_the_library_keeps_its_name(install: Install) -> None:
    install("theirs", "gcn", "raise RuntimeError('must not be imported')")
    assert resolve("gcn", "block").method == "gcn"
    assert "not used: the package theirs has a method with the name of one above" in listed()


def test_a_recipe_without_tables_is_refused(install: Install) -> None:
    install("theirs", "shallow", recipe="lr = 0.02\n")
    with pytest.raises(ConfigError, match=r"`.*shallow.toml` has the value `lr` outside of a table; put it under"):
        resolve("shallow", "block")


def test_an_unknown_name_is_compared_with_theirs_too(install: Install) -> None:
    install("theirs", "shallow")
    with pytest.raises(ConfigError, match=r"unknown method `shalow`; did you mean `shallow`\?"):
        find_method("shalow")
    with pytest.raises(ConfigError, match=r"choose one of: mlp, .*, shallow"):
        find_method("zzz")
