import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from lazygnn.config import TrainerOptions
from lazygnn.distributed.checkpoint import RankCheckpoints
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.saving import RankSaver
from lazygnn.distributed.trainer import RankTrainer
from lazygnn.errors import CheckpointError
from lazygnn.run.log import RunLog
from lazygnn.run.saving import Interrupted
from tests.distributed.test_checkpoint import make_trainer
from tests.distributed.workers import in_threads


class Recorder(RankCheckpoints):
    """Records what would be saved."""

    def __init__(self, ranks: Ranks) -> None:
        super().__init__(Path("nowhere"), ranks)
        self.saved: list[int] = []
        self.failure: Exception | None = None

    def save(self, trainer: RankTrainer) -> None:
        if self.failure is not None:
            raise self.failure
        self.saved.append(trainer.num_batches)


def make_saver(recorder: Recorder, tmp_path: Path, **options: Any) -> RankSaver:
    return RankSaver(recorder, TrainerOptions(**options), tmp_path, RunLog(tmp_path / "log.jsonl"))


def test_checkpoints_are_due_by_steps(prepared: Path, tmp_path: Path) -> None:
    recorder, trainer = Recorder(Ranks()), make_trainer(prepared, 5)
    saver = make_saver(recorder, tmp_path, checkpoint_every=2)
    trainer.on_batch, trainer.requests = saver, saver.requests
    trainer.run()
    assert recorder.saved == [2, 4]


def test_the_first_rank_has_the_clock(tmp_path: Path) -> None:
    for rank, late in ((0, 1.0), (1, 0.0)):
        saver = make_saver(Recorder(Ranks(rank, 2)), tmp_path, checkpoint_minutes=1e-9)
        assert saver.requests() == [0.0, late]


def test_a_signal_to_one_rank_stops_all(prepared: Path, tmp_path: Path) -> None:
    recorder, trainer = Recorder(Ranks()), make_trainer(prepared, 5)
    saver = make_saver(recorder, tmp_path)
    with saver.handling_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        assert saver.requests()[0] == 1
    # another rank has asked
    other = make_saver(recorder, tmp_path)
    trainer.requested, trainer.num_batches = [1.0, 0.0], 7
    with pytest.raises(Interrupted, match="resume it with"):
        other(trainer)
    assert recorder.saved == [7]


def test_a_signal_after_the_last_step_stops_all(tmp_path: Path) -> None:
    def run(ranks: Ranks, told: int | None) -> int | None:
        saver = make_saver(Recorder(ranks), tmp_path)
        saver.signum = signal.SIGINT if ranks.rank == told else None
        try:
            saver.check()
        except Interrupted as stop:
            return stop.signum
        return None

    assert in_threads(3, lambda ranks: run(ranks, 1)) == [signal.SIGINT] * 3
    assert in_threads(3, lambda ranks: run(ranks, None)) == [None] * 3


def test_a_full_disk_is_a_warning_until_a_signal(
    prepared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, trainer = Recorder(Ranks()), make_trainer(prepared, 1)
    recorder.failure = CheckpointError("the disk is full")
    saver = make_saver(recorder, tmp_path, checkpoint_every=1)
    trainer.requested = [0.0, 0.0]
    with caplog.at_level(logging.WARNING):
        saver(trainer)
    assert "the disk is full" in caplog.text
    trainer.requested = [1.0, 0.0]
    with pytest.raises(CheckpointError, match="the disk is full"):
        saver(trainer)


def test_weights_that_are_not_finite_are_not_saved(
    prepared: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, trainer = Recorder(Ranks()), make_trainer(prepared, 1)
    with torch.no_grad():
        next(trainer.model.parameters()).fill_(torch.nan)
    with caplog.at_level(logging.WARNING):
        make_saver(recorder, tmp_path).save(trainer)
    assert recorder.saved == []
    assert "not finite" in caplog.text
