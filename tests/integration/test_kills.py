"""Trainings that are stopped at random moments, by any signal, end like those that nothing has stopped."""

import json
import os
import random
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from lazygnn.run.folder import CHECKPOINTS, CONFIG
from tests.helpers import say
from tests.processes import start_command
from tests.setups import SETUPS, differences, outcome, resume, start, write_graph

MESSAGE = "the run is saved, resume it with `lazygnn train --resume {run}`"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "small.npz"
    write_graph(path)
    return path


class Victim:
    """A training that is started or resumed, and stopped, again and again."""

    def __init__(self, name: str, graph: Path, folder: Path, epochs: int, seed: int) -> None:
        self.folder, self.run = folder, folder / "run-0"
        self.environment = {"LAZYGNN_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        self.printed = folder / "printed"
        self.name, self.graph, self.epochs = name, graph, epochs
        self.draw, self.ended = random.Random(seed), 0
        self.finish(start(name, graph, folder / "straight", epochs))
        self.expected = outcome(folder / "straight")

    def begin(self) -> ForkServerProcess:
        arguments = start(self.name, self.graph, self.run, self.epochs)
        arguments = resume(self.run) if (self.run / CONFIG).exists() else arguments
        return start_command(arguments, self.printed, self.environment)

    def stop(self, signum: signal.Signals) -> bool:
        """Stops the training at a random moment; returns whether it was still running."""
        process = self.begin()
        if signum is not signal.SIGKILL or self.draw.random() < 0.7:
            self._wait_for_a_checkpoint(process)
            time.sleep(self.draw.uniform(0, 0.2))
        else:
            # while it starts
            time.sleep(self.draw.uniform(0, 0.5))
        landed = process.is_alive()
        _send(process, signum)
        process.join(timeout=300)
        text = self.printed.read_text()
        if process.exitcode == 0:
            self._check()
            self.ended += 1
            self.run = self.folder / f"run-{self.ended}"
            return False
        if signum is not signal.SIGKILL:
            assert process.exitcode == 128 + signum, text
            saved, ended = MESSAGE.format(run=self.run), f"the run has ended, see `lazygnn show {self.run}`"
            assert f"stopped by {signum.name}; {saved}" in text or f"stopped by {signum.name}; {ended}" in text
        return landed

    def finish(self, arguments: list[str] | None = None) -> None:
        process = self.begin() if arguments is None else start_command(arguments, self.printed, self.environment)
        process.join()
        assert process.exitcode == 0, self.printed.read_text()
        if arguments is None:
            self._check()

    def _check(self) -> None:
        result = json.loads(self.printed.read_text().splitlines()[-1])
        assert result["test"] == self.expected["result"]["test"]
        assert differences(self.expected, outcome(self.run)) == []

    def _wait_for_a_checkpoint(self, process: ForkServerProcess) -> None:
        deadline, seen = time.monotonic() + 300, _latest(self.run)
        while process.is_alive() and _latest(self.run) == seen and time.monotonic() < deadline:
            time.sleep(0.002)


def _latest(run: Path) -> str:
    return max((path.name for path in (run / CHECKPOINTS).glob("*.json")), default="")


def _send(process: ForkServerProcess, signum: signal.Signals) -> None:
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signum)


def stop_and_finish(victim: Victim, signals: list[signal.Signals]) -> None:
    for signum in signals:
        # one that comes after the end does not count
        while not victim.stop(signum):
            pass
    victim.finish()


@pytest.mark.parametrize("name", ["disk", "deep full batch"])
def test_two_kills_leave_no_trace(name: str, graph: Path, tmp_path: Path) -> None:
    stop_and_finish(Victim(name, graph, tmp_path, 20, seed=0), [signal.SIGKILL] * 2)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_prints_how_to_resume(signum: signal.Signals, graph: Path, tmp_path: Path) -> None:
    stop_and_finish(Victim("parts", graph, tmp_path, 40, seed=1), [signum])


@pytest.mark.soak
@pytest.mark.parametrize("name", SETUPS)
def test_twenty_kills_of_every_kind_of_training_leave_no_trace(
    name: str, graph: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    victim = Victim(name, graph, tmp_path, 100, seed=list(SETUPS).index(name))
    stop_and_finish(victim, [signal.SIGKILL] * 20 + [signal.SIGTERM, signal.SIGINT] * 2)
    say(request, f"{name}: 20 kills and 4 other signals, in {victim.ended + 1} trainings")
