"""Commands about several runs."""

from pathlib import Path

import numpy as np
import pytest

from lazygnn import commands
from lazygnn.methods import resolve
from tests.cli.helpers import QUICK, Command, assert_one_line


def test_compare_prints_a_table_and_a_verdict_or_json(lazygnn: Command, trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    config = resolve("mlp", str(trained.parent / "named.npz"), {"epochs": 1, "hidden_channels": 4}, device="cpu")
    commands.train(config, other, quiet=True)
    done = lazygnn("compare", trained, other, "--out", "curves.png", "--split", "val")
    assert done.status == 0
    assert "unknown, since they have 1 seed in common" in done.out
    assert Path("curves.png").is_file()
    as_json = lazygnn("compare", trained, other, "--json")
    assert [run["run"] for run in as_json.result["runs"]] == [str(trained), str(other)]
    assert_one_line(lazygnn("compare", trained, tmp_path / "gone"), "gone` is not a run folder")


def test_tune_writes_options_that_train_takes(lazygnn: Command, dataset: Path) -> None:
    pytest.importorskip("optuna")
    done = lazygnn("tune", "mlp", dataset, *QUICK, "--trials", 1, "--out", "search")
    assert done.status == 0
    assert done.err.splitlines()[0].startswith("trial 0: val ")
    assert done.err.splitlines()[-1] == "wrote the best options to search/best.toml"
    again = lazygnn("tune", "--resume", "search", "--trials", 2, "--quiet")
    assert (again.result["complete"], again.err) == (2, "")
    trained = lazygnn("train", "mlp", dataset, "--config", "search/best.toml", "--device", "cpu", "--quiet")
    assert trained.result["val"] == again.result["val"]
    assert_one_line(
        lazygnn("tune", "mlp"), "give a method and a data set, such as `lazygnn tune lazygnn wordnet-small`"
    )
    for ignored in (("mlp",), ("--seed", 0), ("--space", "paper"), ("--device", "cpu"), ("--set", "lr=0.1")):
        done = lazygnn("tune", *ignored, "--resume", "search")
        assert_one_line(done, "`--resume` uses the settings of the search; it can only be combined with `--trials`")
    assert_one_line(lazygnn("tune", "mlp", dataset, "--lr", 0.1), "`--lr` is not a flag; use `--set lr=0.1`")


def test_tune_goes_on_with_another_graph_only_if_told(lazygnn: Command, dataset: Path) -> None:
    pytest.importorskip("optuna")
    lazygnn("tune", "mlp", dataset, *QUICK, "--trials", 1, "--out", "search")
    arrays = dict(np.load(dataset))
    np.savez(dataset, **arrays | {"x": arrays["x"] + 1})
    resume = ("tune", "--resume", "search", "--trials", 2)
    assert_one_line(lazygnn(*resume), "has other content than when search `search` was started")
    assert lazygnn(*resume, "--no-verify").result["complete"] == 2


def test_reports_are_shown_beside_the_json_line_and_written_as_a_page(
    lazygnn: Command, trained: Path, tmp_path: Path
) -> None:
    done = lazygnn("evaluate", trained, "--device", "cpu", "--report")
    assert done.status == 0
    assert len(done.out.splitlines()) == 1
    assert "of 20 test nodes are predicted right; the most frequent class alone" in done.err
    assert "precision" in done.err
    assert lazygnn("predict", trained, "--out", "sure.csv", "--device", "cpu", "--calibrated").status == 0
    done = lazygnn("report", trained, trained, "--out", "report.html", "--device", "cpu")
    assert (done.status, done.out, done.err) == (0, "", "wrote report.html\n")
    assert "<h1>2 runs</h1>" in (tmp_path / "report.html").read_text()
    assert_one_line(lazygnn("report", trained, "--out", "report.pdf"), "choose a name that ends in .html")
