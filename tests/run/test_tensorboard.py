from pathlib import Path
from typing import Any

import pytest

from lazygnn.errors import ConfigError
from lazygnn.run import tensorboard
from lazygnn.run.tensorboard import TensorBoardLog, require_tensorboard
from lazygnn.training import EpochReport
from tests.helpers import read_events


def report(epoch: int) -> EpochReport:
    scores = {"train": 0.5, "val": 0.25} if epoch % 2 == 0 else None
    return EpochReport(epoch, 1 / epoch, 0.5 * epoch, 0.125, scores, {"mean_age": 2.0} if epoch == 2 else None)


def test_loss_rate_time_and_scores_of_every_epoch_are_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with TensorBoardLog(tmp_path / "events") as log:
        for epoch in (1, 2):
            log.append(report(epoch))
            # what is written does not wait for the end
            assert len(read_events(tmp_path / "events")["loss"]) == epoch
    assert read_events(tmp_path / "events") == {
        "loss": [(1, 1.0), (2, 0.5)],
        "lr": [(1, 0.125), (2, 0.125)],
        "seconds": [(1, 0.5), (2, 1.0)],
        "scores/train": [(2, 0.5)],
        "scores/val": [(2, 0.25)],
        "laziness/mean_age": [(2, 2.0)],
    }


def test_a_second_process_writes_every_step_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with TensorBoardLog(tmp_path) as log:
        for epoch in (1, 2, 3):
            log.append(report(epoch))
    # as in a log that was rewound to the first epoch
    lines: list[dict[str, Any]] = [{"epoch": 1, "loss": 1.0, "seconds": 0.5, "scores": None}]
    with TensorBoardLog(tmp_path, lines) as log:
        log.append(report(2))
    assert read_events(tmp_path)["loss"] == [(1, 1.0), (2, 0.5)]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"TensorBoard is not installed; install it with `pip install 'lazygnn\[tens"):
        require_tensorboard()
