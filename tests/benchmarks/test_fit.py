"""Whole trainings with their evaluations."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import fit
from benchmarks.published import TABLES, Results
from lazygnn.graph import Graph
from lazygnn.methods import build, resolve
from lazygnn.training import Trainer
from tests.benchmarks.helpers import CARRIED, CPU, read_result


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, block_graph: Graph) -> None:
    monkeypatch.setattr(fit, "load_graph", lambda *_: block_graph)


def test_trainings_are_measured_checked_and_published(tmp_path: Path) -> None:
    report = fit.main(["wordnet-small", "coauthor_cs"], CPU, epochs=3, eval_every=2, repeats=2, folder=tmp_path)
    assert not report.failed()
    result, page = read_result(tmp_path)
    assert result.keys() >= CARRIED
    assert "| wordnet-small | lazygnn |" in page
    for exact, lazy in (result["rows"][:2], result["rows"][2:]):
        assert exact["ratio"] == 1
        assert lazy["ratio"] == pytest.approx(lazy["seconds"] / exact["seconds"])
        for row in (exact, lazy):
            assert len(row["all_seconds"]) == 2
            assert 0 < row["eval seconds"] < row["seconds"]
            assert (row["config"]["trainer"]["epochs"], row["config"]["trainer"]["eval_every"]) == (3, 2)
    (file,) = tmp_path.glob("*.json")
    assert len(TABLES["fit"](Results([file])).markdown().splitlines()) == 2 + 4


def test_a_training_in_turns_ends_as_one_alone(tmp_path: Path, block_graph: Graph) -> None:
    report = fit.main(["wordnet-small"], CPU, epochs=4, folder=tmp_path)
    for row in report.rows:
        torch.manual_seed(0)
        config = resolve(row["method"], "wordnet-small", {"epochs": 4, "eval_every": 1}, graph=block_graph)
        built = build(config, block_graph, CPU)
        alone = Trainer(built.model, built.loader, built.graph, config.trainer).fit()
        assert {split: row[split] for split in alone.scores} == alone.scores


def test_scores_that_are_not_exact_are_a_wrong_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Trainer.finish

    def worse(self: Trainer) -> Any:
        result = finish(self)
        result.scores["test"] -= 0.5
        return result

    monkeypatch.setattr(Trainer, "finish", worse)
    report = fit.main(["wordnet-small"], CPU, epochs=2, folder=tmp_path)
    assert report.failed()
    assert [row["seconds"] for row in report.rows] == [None, None]
    assert report.rows[0]["reason"] == "fails: scores are exact"
