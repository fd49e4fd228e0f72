"""The example of docs/guides/add-a-method.md is a method like any other: it trains, evaluates and predicts."""

import re
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from lazygnn import commands
from lazygnn.graph import Graph
from lazygnn.methods import METHODS, build, recipes, resolve
from lazygnn.ops import Csr

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "add-a-method.md"
FILES = {"lazygnn.models.one_hop": "models/one_hop.py", "lazygnn.methods.one_hop": "methods/one_hop.py"}


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [dedent(block) for block in found]


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds the two modules of the guide, the line in the table, and the recipe."""
    for name, code in zip(FILES, blocks("python"), strict=True):
        module = ModuleType(name)
        exec(compile(code, FILES[name], "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(METHODS, "one-hop", sys.modules["lazygnn.methods.one_hop"].METHOD)
    (recipe,) = blocks("toml")
    known = recipes._recipes
    tables = {"one-hop": tomllib.loads(recipe)}
    monkeypatch.setattr(recipes, "_recipes", lambda name: tables.get(name) or known(name))


def test_the_guide_names_three_files_and_the_line_in_the_table() -> None:
    text = PAGE.read_text()
    assert len(text.splitlines()) < 75
    assert re.findall(r"`src/lazygnn/([\w./-]+)`", text) == [*FILES.values(), "recipes/one-hop.toml"]
    assert '`"one-hop": one_hop.METHOD`' in text


def test_the_example_trains_evaluates_and_predicts(added: None, block_arrays: dict[str, Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "block.npz", **block_arrays)
    config = resolve("one-hop", str(tmp_path / "block.npz"), {"epochs": 30, "dropout": 0.1}, device="cpu")
    assert config.trainer.lr == 0.02
    result = commands.train(config, tmp_path / "run", quiet=True)
    assert result["test"] > 0.5
    assert commands.evaluate_run(tmp_path / "run", device="cpu")["test"] == result["test"]
    assert commands.predict_run(tmp_path / "run", device="cpu")[0].shape == (60, 3)


def test_the_example_takes_sparse_features(added: None, block_graph: Graph) -> None:
    x = torch.as_tensor(block_graph.x)
    row, col = x.nonzero(as_tuple=True)
    sparse = replace(block_graph, x=Csr.from_sorted(row, col, x[row, col], (x.shape[0], x.shape[1])))
    outputs = []
    for graph in (block_graph, sparse):
        torch.manual_seed(0)
        outputs.append(build(resolve("one-hop", "block"), graph).model.eval().infer(graph))
    torch.testing.assert_close(outputs[0], outputs[1])


def test_the_example_is_its_formula(added: None, block_graph: Graph) -> None:
    built = build(resolve("one-hop", "block", {}), block_graph)
    model: Any = built.model.eval()
    (batch,) = built.loader
    expected = block_graph.adj.to_dense() @ model.linear(torch.as_tensor(block_graph.x))
    torch.testing.assert_close(model(batch), expected)
    torch.testing.assert_close(model.infer(block_graph), expected)
