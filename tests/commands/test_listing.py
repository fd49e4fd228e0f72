import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lazygnn.commands.listing import list_methods, list_options
from lazygnn.config import TrainerOptions
from lazygnn.data import load_graph
from lazygnn.errors import GraphError
from lazygnn.methods import METHODS, find_method, recipe


def options_of(
    method: str, dataset: str = "default", root: Path | None = None, *, width: int = 200, everything: bool = False
) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width)
    list_options(method, dataset, None if root is None else str(root), console, everything=everything)
    return file.getvalue()


def test_methods_and_data_sets_are_listed() -> None:
    file = io.StringIO()
    list_methods(Console(file=file, width=200))
    for name in (*METHODS, "cora", "wordnet-small", "ogbn-arxiv"):
        assert name in file.getvalue()


@pytest.mark.parametrize("method", list(METHODS))
def test_every_option_of_a_method_is_listed(method: str) -> None:
    out = options_of(method)
    for name, field in find_method(method).options.model_fields.items():
        assert name in out
        assert str(field.description).split(";")[0] in out
    assert "weight_decay" in out


def test_allowed_values_and_the_recipe_are_listed() -> None:
    def row(option: str, method: str, dataset: str = "default") -> list[str]:
        lines = options_of(method, dataset, everything=True).splitlines()
        (line,) = [line for line in lines if line.startswith(f"│ {option} ")]
        return [cell.strip() for cell in line.strip("│").split("│")[:4]]

    values = recipe("lazygnn", "cora")
    assert row("alpha", "lazygnn", "cora") == ["alpha", "0.1", str(values["alpha"]), "number > 0 and <= 1"]
    assert row("start", "lazygnn", "cora") == ["start", "drift", "", "drift or mix"]
    assert row("patience", "lazygnn", "cora") == ["patience", "", str(values["patience"]), "integer >= 1 or none"]
    assert row("epochs", "label-propagation")[:3] == ["epochs", "200", "0"]
    assert row("keep_batches", "cluster-gcn")[1::2] == ["true", "true or false"]


def cells_of(out: str) -> dict[str, list[str]]:
    """The first cells of all lines of all tables, by option, with the headings as `option`."""
    lines = [re.split("[│┃]", line)[1:4] for line in out.splitlines() if line[:1] in ("│", "┃")]
    # a long meaning goes on in lines without a name
    return {option.strip(): [cell.strip() for cell in others] for option, *others in lines if option.strip()}


def test_of_a_data_set_the_options_that_are_not_at_their_default_are_listed(dataset: Path) -> None:
    ruled, tuned = cells_of(options_of("lazygnn", str(dataset))), cells_of(options_of("lazygnn", "cora"))
    assert (ruled.pop("option"), tuned.pop("option")) == (["default", "rule"], ["default", "recipe"])
    assert ruled["schedule"] == ["constant", "cosine"]
    fields = TrainerOptions.model_fields | find_method("lazygnn").options.model_fields
    by_rule, by_recipe = recipe("lazygnn", "block", graph=load_graph(dataset)), recipe("lazygnn", "cora")
    for shown, values in ((ruled, by_rule), (tuned, by_recipe | {"standardize_features": "off"})):
        assert shown.keys() == {name for name, value in values.items() if value != fields[name].default}
    # the rule sets it to the default
    assert "dropout" in by_rule
    assert "dropout" not in ruled
    line = "other options have their defaults; `--all` shows them"
    assert options_of("lazygnn", "cora").splitlines()[-3] == line
    for out in (options_of("lazygnn"), options_of("lazygnn", str(dataset), everything=True)):
        assert line not in out
        assert "checkpoint_minutes" in out


def test_a_star_marks_recipes_for_data_that_cannot_be_downloaded() -> None:
    recipes, legend = options_of("lazygnn").splitlines()[-2:]
    public = "flickr, reddit, yelp, ogbn-arxiv, ogbn-products"
    assert recipes == f"recipes for: cora, citeseer, pubmed, wordnet-small, arxiv*, wordnet*, {public}"
    assert legend == "* cannot be downloaded: needs your own `<name>.npz` in the folder of data files (`--root`)"


def test_names_of_options_are_not_cut_on_a_narrow_terminal() -> None:
    assert "checkpoint_minutes" in options_of("lazygnn", width=80)


def test_an_unknown_data_set_is_refused(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_DATA", str(tmp_path / "env"))
    with pytest.raises(GraphError, match=r"^no file `nosuch.npz`"):
        options_of("lazygnn", "nosuch.npz")
    with pytest.raises(GraphError, match=r"^unknown data set `nosuch`: no file `.*env/nosuch.npz`"):
        options_of("lazygnn", "nosuch")
    # a data set without a recipe for this method, one that only has a recipe, and a file
    for name, source in (("reddit", "default recipe"), ("arxiv", "recipe for arxiv"), (str(dataset), "rule for block")):
        out = options_of("mlp", name)
        assert f"training, {source}" in out
        assert f"mlp, {source}" in out
    (tmp_path / "env").mkdir()
    dataset.rename(tmp_path / "env" / "nosuch.npz")
    assert "rule for nosuch" in options_of("lazygnn", "nosuch")
    with pytest.raises(GraphError, match=r"^unknown data set `nosuch`"):
        options_of("lazygnn", "nosuch", tmp_path)
    with pytest.raises(GraphError, match=r"^no file `nosuch.npz`; .*`nosuch`"):
        options_of("lazygnn", "nosuch.npz")
    monkeypatch.delenv("LAZYGNN_DATA")
    assert "rule for nosuch" in options_of("lazygnn", "nosuch", tmp_path / "env")


def test_a_threshold_that_validation_chooses_is_listed_for_every_method(
    tmp_path: Path, block_arrays: dict[str, Any]
) -> None:
    np.savez(tmp_path / "labels.npz", **block_arrays | {"y": np.eye(3)[block_arrays["y"]].astype(np.int64)})
    for method in ("mlp", "label-propagation"):
        assert cells_of(options_of(method, str(tmp_path / "labels.npz")))["threshold"] == ["0.5", "validation"]
