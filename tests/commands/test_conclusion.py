import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from lazygnn.commands.conclusion import conclude, keeping_best_weights
from lazygnn.config import Config
from lazygnn.errors import DivergenceError
from lazygnn.graph import Graph
from lazygnn.methods import build, resolve
from lazygnn.run.folder import CHECKPOINTS, CURVES, LOG, REPORT, WEIGHTS, Run
from lazygnn.training import FitResult, Trainer
from lazygnn.training.trainer import Best

FIT = FitResult(20, 18, {"train": 0.9, "val": 0.7, "test": 0.6}, seconds=3.0, eval_seconds=1.0)


def finish(path: Path, graph: Graph, scores: list[float], *, further: dict[str, Any] | None = None) -> dict[str, Any]:
    """Concludes a run of 20 epochs with these validation scores, after which it has a checkpoint."""
    config: Config = resolve("mlp", "block", {"epochs": 20, "keep_checkpoint": False}, graph=graph)
    run = Run.create(path, config)
    (path / CHECKPOINTS).mkdir()
    # what `evaluate --report` writes during the training
    run.save_report({"calibration": {"temperature": 0.3}})
    seconds = [9.0] + [0.1] * (len(scores) - 1)
    lines = [
        {"epoch": epoch, "loss": 1.0, "seconds": time, "scores": {"val": score}}
        for epoch, (score, time) in enumerate(zip(scores, seconds, strict=True), 1)
    ]
    (path / LOG).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    model = build(config, graph).model
    result = conclude(run, config, model, graph.task, FIT, "accuracy", further=further)
    assert run.result() == result
    assert not (path / CHECKPOINTS).exists()
    # it was of earlier weights
    assert not (path / REPORT).exists()
    return result


def test_the_result_has_the_median_epoch_and_all_seconds(
    block_graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", lambda _, path: drawn.append(path))
    result = finish(tmp_path / "run", block_graph, [0.7] * 20, further={"peak_memory_mib": 5, "ranks": 2})
    # the first epoch, which compiles, does not count
    assert (result["seconds_per_epoch"], result["seconds"], result["eval_seconds"]) == (0.1, 4.0, 1.0)
    assert (result["epochs"], result["best_epoch"], result["val"], result["test"]) == (20, 18, 0.7, 0.6)
    assert (result["peak_memory_mib"], result["ranks"]) == (5, 2)
    assert drawn == [tmp_path / "run" / CURVES]
    assert not caplog.messages


def test_validation_that_still_rises_is_warned_of(
    block_graph: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    finish(tmp_path / "run", block_graph, [0.03 * epoch for epoch in range(1, 21)])
    (line,) = caplog.messages
    assert line == (
        "validation was still rising when training ended: 0.5400 after nine tenths of the epochs, 0.6000 at the end; "
        "train longer, with `--set epochs=40` or more"
    )


@pytest.mark.parametrize("failure", [DivergenceError("the loss is nan"), OSError("the disk is full")])
def test_all_ranks_raise_the_error_of_the_one_that_keeps_the_best_weights(
    tmp_path: Path, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run.create(tmp_path / "run", resolve("mlp", "block"))
    trainer = cast(Trainer, SimpleNamespace(best=Best(3, {}, 0.5, {"x": torch.ones(2)})))
    errors = []
    for writes in (False, True):
        with pytest.raises(type(failure)) as stop, keeping_best_weights(run, trainer, writes=writes):
            raise failure
        errors.append(str(stop.value))
        assert (run.path / WEIGHTS).exists() is writes
    kept = f"the best weights, of epoch 3, are kept: `lazygnn evaluate {run.path}`"
    diverged = isinstance(failure, DivergenceError)
    assert errors == [f"{failure}; {kept}" if diverged else str(failure)] * 2
    assert caplog.messages == ([] if diverged else [kept])


def test_a_picture_that_cannot_be_drawn_keeps_the_result(
    block_graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", fail)
    assert finish(tmp_path / "run", block_graph, [0.7] * 20)["val"] == 0.7
    assert caplog.messages == [f"cannot draw `{tmp_path / 'run' / CURVES}`: the disk is full"]
