"""The command line of the experiments."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from common import tables
from experiments import best, cli
from experiments.cli import app
from lazygnn.config import Config
from lazygnn.graph import Graph


def invoke(*words: object) -> Any:
    return CliRunner().invoke(app, list(map(str, words)))


def test_a_missing_data_set_is_one_line_and_a_status(results: Path, tmp_path: Path) -> None:
    part = ("--dataset", "wordnet", "--case", "exact, 2 steps", "--seeds", 3)
    done = invoke("staleness", *part, "--root", tmp_path, "--device", "cpu", "--workers", 2)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: unknown data set `wordnet`: no file `{tmp_path / 'wordnet.npz'}`")
    assert not results.exists()


@pytest.mark.parametrize("option", ["--seeds", "--workers"])
def test_no_seeds_and_no_workers_are_rejected(option: str) -> None:
    done = invoke("staleness", option, 0)
    assert done.exit_code == 2
    assert f"Invalid value for '{option}'" in done.stderr


@pytest.mark.parametrize("option", ["--table", "--case", "--dataset"])
def test_unknown_names_of_the_staleness_study_list_the_known_ones(option: str) -> None:
    done = invoke("staleness", option, "unknown name")
    assert done.exit_code == 2
    assert f"Invalid value for {option}" in done.stderr
    assert "choose from:" in done.stderr


def test_only_tables_of_the_docs_can_be_saved() -> None:
    done = invoke("staleness", "--save")
    assert done.exit_code == 2
    assert "only a table of the docs can be saved" in done.stderr


def test_outdated_tables_are_reported_and_updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("before <!-- table: demo -->\nold\n<!-- end --> after\n")
    monkeypatch.setattr(tables, "pages", lambda: [page])
    monkeypatch.setattr(cli, "outdated_reproduction", dict)
    done = invoke("tables")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (1, f"outdated: {page}")
    assert "old" in page.read_text()
    assert invoke("tables", "--write").exit_code == 0
    assert "| APPNP, 10 exact steps |" in page.read_text()
    done = invoke("tables")
    assert (done.exit_code, done.stdout) == (0, "")


def test_the_depth_study_takes_a_graph_of_ones_own(results: Path, tmp_path: Path, block_graph: Graph) -> None:
    block_graph.save(file := tmp_path / "mine.npz")
    part = ("depth", "--case", "mlp", "--seeds", 1, "--device", "cpu", "--stored", "--dataset", file)
    done = invoke(*part, "--metric", "macro-f1")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["| method | mine |", "| --- | --- |", "| mlp |  |"]
    assert not results.exists()
    done = invoke(*part, "--metric", "rmse")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: metric `rmse` does not fit a single-label task; choose one of: ")
    done = invoke(*part[:-1], tmp_path / "other.npz")
    assert done.exit_code == 2
    assert "other.npz" in done.stderr


def test_the_metric_of_the_depth_study_is_that_of_all_runs(monkeypatch: pytest.MonkeyPatch, block_graph: Graph) -> None:
    seen: list[Config] = []

    def run(_: str, configs: Sequence[Config], **rest: object) -> list[None]:
        seen.extend(configs)
        return [None] * len(configs)

    monkeypatch.setattr(best, "run_most", run)
    monkeypatch.setattr(best, "load", lambda *_: block_graph)
    for metric in ((), ("--metric", "macro-f1")):
        invoke("depth", "--case", "mlp", "--seeds", 1, "--dataset", "dblp", "--dataset", "minesweeper", *metric)
    assert [config.trainer.metric for config in seen] == ["auto", "roc-auc", "macro-f1", "macro-f1"]
