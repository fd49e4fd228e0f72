import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from lazygnn.config import TrainerOptions
from lazygnn.errors import CheckpointError
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.log import RunLog
from lazygnn.run.saving import Interrupted, Saver, stopping
from lazygnn.training import Trainer


class Recorder(CheckpointFolder):
    """Remembers the numbers it was asked to save."""

    def __init__(self, path: Path, error: CheckpointError | None = None) -> None:
        super().__init__(path)
        self.saved: list[int] = []
        self.error = error

    def save(self, number: int, tensors: Any, state: Any) -> None:
        self.saved.append(number)
        if self.error is not None:
            raise self.error


@pytest.fixture
def folder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "run" / "checkpoints")


@pytest.fixture
def restored_handlers() -> Iterator[None]:
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def trainer(num_batches: int, weight: float = 1.0) -> Trainer:
    tensors = {"model.x": torch.tensor([weight]), "random.cpu": torch.zeros(1, dtype=torch.uint8)}
    found = SimpleNamespace(num_batches=num_batches, checkpoint=lambda: (tensors, {}))
    found.has_finite_weights = lambda: math.isfinite(weight)
    return cast(Trainer, found)


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_not_saved(
    folder: Recorder, weight: float, caplog: pytest.LogCaptureFixture
) -> None:
    saver = Saver(folder, TrainerOptions(checkpoint_every=1))
    saver(trainer(1))
    saver(trainer(2, weight))
    assert folder.saved == [1]
    assert "no checkpoint was written: a weight is not finite" in caplog.text


def saves(saver: Saver, batches: range) -> None:
    for number in batches:
        saver(trainer(number))


def test_saves_every_few_batches(folder: Recorder) -> None:
    saves(Saver(folder, TrainerOptions(checkpoint_every=3)), range(1, 10))
    assert folder.saved == [3, 6, 9]


def test_saves_every_few_minutes(folder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    saver = Saver(folder, TrainerOptions(checkpoint_minutes=2))
    for number, now in enumerate((100, 121, 200, 240, 242), 1):  # noqa: B007
        saver(trainer(number))
    # the time counts from the last checkpoint
    assert folder.saved == [2, 5]


def test_a_checkpoint_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Recorder(tmp_path, CheckpointError("the disk is full"))
    saves(Saver(folder, TrainerOptions(checkpoint_every=1)), range(1, 3))
    assert folder.saved == [1, 2]
    assert caplog.messages == ["no checkpoint was written: the disk is full"] * 2


def test_the_log_is_on_the_disk_before_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(RunLog, "sync", lambda _: order.append("log"))
    monkeypatch.setattr(CheckpointFolder, "save", lambda *_: order.append("checkpoint"))
    Saver(CheckpointFolder(tmp_path), TrainerOptions(checkpoint_every=1), RunLog(tmp_path / "log"))(trainer(1))
    assert order == ["log", "checkpoint"]


@pytest.mark.usefixtures("restored_handlers")
def test_a_run_that_cannot_be_saved_after_a_signal_does_not_say_that_it_is(tmp_path: Path) -> None:
    saver = Saver(Recorder(tmp_path, CheckpointError("the disk is full")), TrainerOptions())
    with saver.handling_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(CheckpointError, match="the disk is full"):
            saver(trainer(1))


@pytest.mark.usefixtures("restored_handlers")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_stops_after_the_batch(folder: Recorder, signum: signal.Signals) -> None:
    saver = Saver(folder, TrainerOptions())
    before = signal.getsignal(signum)
    with saver.handling_signals():
        saver(trainer(1))
        os.kill(os.getpid(), signum)
        assert folder.saved == []
        message = f"stopped by {signum.name}; the run is saved, resume it with `lazygnn train --resume .*run`"
        with pytest.raises(Interrupted, match=message) as stop:
            saver(trainer(2))
    assert stop.value.signum == signum
    assert folder.saved == [2]
    assert signal.getsignal(signum) == before


@pytest.mark.usefixtures("restored_handlers")
def test_a_second_signal_stops_at_once(folder: Recorder) -> None:
    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    signal.signal(signal.SIGTERM, stop)
    with Saver(folder, TrainerOptions()).handling_signals():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Stop):
            os.kill(os.getpid(), signal.SIGTERM)
    assert folder.saved == []


def test_a_thread_leaves_signals_alone(folder: Recorder) -> None:
    before = signal.getsignal(signal.SIGTERM)
    entered = []

    def use() -> None:
        with Saver(folder, TrainerOptions()).handling_signals():
            entered.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert entered == [before]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.usefixtures("restored_handlers")
def test_a_second_signal_of_a_launcher_has_no_effect() -> None:
    seen: list[int] = []
    with stopping(seen.append, twice=True):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
    assert seen == [signal.SIGINT, signal.SIGINT]
