import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from lazygnn import commands
from lazygnn.commands.evaluation import evaluate_by_metrics
from lazygnn.commands.prediction import write_predictions
from lazygnn.commands.reporting import show_report, write_page
from lazygnn.config import Config
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.reports import make_report
from lazygnn.run.folder import Run

Arrays = dict[str, Any]
Configure = Callable[..., Config]


@pytest.fixture
def run(dataset: Path, tmp_path: Path, configure: Configure) -> Path:
    commands.train(configure(dataset, "mlp", epochs=2), tmp_path / "run", quiet=True)
    return tmp_path / "run"


def shown(run: Path, *, verify: bool = True) -> str:
    console = Console(file=io.StringIO(), width=200)
    show_report(run, console, verify=verify)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_report_is_written_shown_and_equal_to_that_of_python(run: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no report; write one with `lazygnn evaluate .*run --report`"):
        shown(run)
    (result,) = evaluate_by_metrics(run, device="cpu", report=True)
    report = json.loads((run / "report.json").read_text())
    assert report["scores"]["accuracy"]["test"] == result["test"]
    logits, graph, _ = commands.predict_run(run, device="cpu")
    assert report == make_report(logits, graph)
    text = shown(run)
    for wanted in ("precision", "confusion", "expected calibration error", "by degree", "by distance", "by agreement"):
        assert wanted in text


def test_a_changed_report_is_shown_as_it_is_on_request(run: Path) -> None:
    evaluate_by_metrics(run, device="cpu", report=True)
    with (run / "report.json").open("a") as file:
        file.write("\n")
    with pytest.raises(CheckpointError, match="has changed since lazygnn wrote it"):
        shown(run)
    assert "precision" in shown(run, verify=False)


def test_reports_of_labels_and_numbers_are_shown(tmp_path: Path, block_arrays: Arrays, configure: Configure) -> None:
    labels = np.eye(3)[block_arrays["y"]].astype(np.int64)
    for name, y, wanted in (("several", labels, "Micro F1"), ("numbers", labels + 0.5, "mean absolute error")):
        np.savez(tmp_path / f"{name}.npz", **block_arrays | {"y": y})
        commands.train(configure(tmp_path / f"{name}.npz", "mlp", epochs=1), tmp_path / name, quiet=True)
        evaluate_by_metrics(tmp_path / name, device="cpu", report=True)
        assert wanted in shown(tmp_path / name)
    with pytest.raises(ConfigError, match="a regression predicts no probabilities; leave out `--calibrated`"):
        write_predictions(tmp_path / "numbers", tmp_path / "out.csv", device="cpu", calibrated=True)
    write_page([tmp_path / "several", tmp_path / "numbers"], tmp_path / "both.html", device="cpu")
    page = (tmp_path / "both.html").read_text()
    assert "<title>2 runs" in page
    assert "a regression predicts no probabilities" in page


def test_probabilities_are_calibrated_on_request(run: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no report"):
        write_predictions(run, tmp_path / "out.csv", device="cpu", calibrated=True)
    evaluate_by_metrics(run, device="cpu", report=True)
    temperature = Run.open(run).report()["calibration"]["temperature"]
    logits, _, _ = commands.predict_run(run, device="cpu")
    found = {}
    for calibrated in (False, True):
        write_predictions(run, tmp_path / "out.csv", device="cpu", calibrated=calibrated)
        rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
        found[calibrated] = [int(row["prediction"]) for row in rows], [float(row["probability"]) for row in rows]
    assert found[True][0] == found[False][0]
    for calibrated, scale in ((False, 1.0), (True, temperature)):
        expected = (logits / scale).softmax(dim=1).max(dim=1).values
        torch.testing.assert_close(torch.tensor(found[calibrated][1]), expected)
    assert found[True][1] != found[False][1]


def test_a_training_that_goes_on_removes_the_report_of_its_earlier_weights(run: Path, tmp_path: Path) -> None:
    evaluate_by_metrics(run, device="cpu", report=True)
    commands.resume(run, epochs=Run.open(run).result()["epochs"] + 1, quiet=True)
    with pytest.raises(CheckpointError, match="has no report; write one with"):
        write_predictions(run, tmp_path / "out.csv", device="cpu", calibrated=True)
    evaluate_by_metrics(run, device="cpu", report=True)
    write_predictions(run, tmp_path / "out.csv", device="cpu", calibrated=True)


def test_a_temperature_belongs_to_the_predictions_that_it_was_fitted_for(run: Path, tmp_path: Path) -> None:
    change = CorrectAndSmooth(smooth_alpha=0.3)
    evaluate_by_metrics(run, device="cpu", report=True, correct_and_smooth=change)
    assert Run.open(run).report()["correct_and_smooth"]["smooth_alpha"] == 0.3
    given: dict[str, Any] = {"device": "cpu", "calibrated": True}
    write_predictions(run, tmp_path / "out.csv", **given, correct_and_smooth=change)
    for other in (None, CorrectAndSmooth()):
        with pytest.raises(
            ConfigError, match="was written with other options of `--correct-and-smooth`; write it again"
        ):
            write_predictions(run, tmp_path / "out.csv", **given, correct_and_smooth=other)
    report = Run.open(run).report()
    Run.open(run).save_report(report | {"calibration": {"temperature": None}, "correct_and_smooth": None})
    with pytest.raises(
        ConfigError,
        match=r"has no temperature, since .*, or all of them are predicted right; leave out",
    ):
        write_predictions(run, tmp_path / "out.csv", **given)


def test_a_page_is_one_file_about_a_run(run: Path, tmp_path: Path) -> None:
    before = sorted(path.name for path in run.iterdir())
    write_page([run], tmp_path / "report.html", device="cpu")
    page = (tmp_path / "report.html").read_text()
    assert "<title>mlp on block.npz" in page
    assert str(tmp_path) not in page
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_page_about_a_changed_graph_is_refused(run: Path, dataset: Path, tmp_path: Path) -> None:
    with np.load(dataset) as file:
        arrays = dict(file)
    # nodes that the run was trained on
    np.savez(dataset, **arrays | {"train_mask": arrays["test_mask"], "test_mask": arrays["train_mask"]})
    with pytest.raises(CheckpointError, match=r"other content than when run .* was started; .* or take it as it is"):
        write_page([run], tmp_path / "report.html", device="cpu")
    assert not (tmp_path / "report.html").exists()
    write_page([run], tmp_path / "report.html", device="cpu", verify=False)


def test_a_page_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write `.*report\.pdf`; choose a name that ends in \.html"):
        write_page([tmp_path / "no run"], tmp_path / "report.pdf")
    with pytest.raises(ConfigError, match=r"the folder `.*missing` does not exist; create it first"):
        write_page([tmp_path / "no run"], tmp_path / "missing" / "report.html")
    with pytest.raises(CheckpointError, match="is not a run folder"):
        write_page([tmp_path / "no run"], tmp_path / "report.html")
