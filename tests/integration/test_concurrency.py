"""Several processes at once: one for each folder, and a folder for each."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.run.folder import LOG, Run
from lazygnn.run.lock import LOCK
from tests.processes import start_command

ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def arguments(tmp_path: Path, block_arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "block.npz", **block_arrays)
    options = [part for pair in ("epochs=150", "hidden_channels=8") for part in ("--set", pair)]
    return ["train", "mlp", str(tmp_path / "block.npz"), "--quiet", "--device", "cpu", *options]


def finish(starts: list[list[str]], tmp_path: Path) -> list[tuple[int | None, str]]:
    """Runs commands at once; returns the exit status of each and what it printed."""
    printed = [tmp_path / f"printed-{index}" for index in range(len(starts))]
    processes = [start_command(one, out, ENVIRONMENT) for one, out in zip(starts, printed, strict=True)]
    for process in processes:
        process.join()
    return [(process.exitcode, out.read_text()) for process, out in zip(processes, printed, strict=True)]


def test_starts_without_a_folder_get_one_each(arguments: list[str], tmp_path: Path) -> None:
    for status, text in finish([arguments] * 3, tmp_path):
        assert status == 0, text
    runs = sorted((tmp_path / "runs").iterdir())
    assert [path.name for path in runs] == ["block-mlp-0", "block-mlp-0-2", "block-mlp-0-3"]
    assert len({Run.open(path).result()["test"] for path in runs}) == 1
    assert [len(Run.open(path).log.read()) for path in runs] == [150] * 3


@pytest.mark.soak
def test_fifty_trainings_at_once_get_fifty_folders(arguments: list[str], tmp_path: Path) -> None:
    for status, text in finish([arguments] * 50, tmp_path):
        assert status == 0, text
    runs = list((tmp_path / "runs").iterdir())
    assert len(runs) == 50
    assert len({Run.open(path).result()["test"] for path in runs}) == 1
    assert [len(Run.open(path).log.read()) for path in runs] == [150] * 50


def test_one_of_several_starts_into_a_folder_trains(arguments: list[str], tmp_path: Path) -> None:
    found = finish([[*arguments, "--out", "run"]] * 3, tmp_path)
    assert sorted(status or 0 for status, _ in found) == [0, 2, 2]
    for status, text in found:
        if status == 2:
            # those that come late find a run that has ended
            assert "is in use by process" in text or "exists and is not empty" in text
            assert text.count("\n") == 1
    assert len(Run.open(tmp_path / "run").log.read()) == 150


def test_one_of_several_resumes_of_a_run_goes_on(arguments: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    endless = [*arguments, "--out", str(run), "--set", "epochs=100000", "--set", "eval_every=1000"]
    first = start_command(endless, tmp_path / "printed", ENVIRONMENT)
    try:
        while not (run / LOG).exists():
            time.sleep(0.01)
            assert first.is_alive(), (tmp_path / "printed").read_text()
        resume = ["train", "--resume", str(run), "--quiet"]
        for status, text in finish([resume] * 3, tmp_path):
            assert status == 2
            assert text.count("\n") == 1
            assert f"`{run}` is in use by process {first.pid} on host `{socket.gethostname()}`, which started" in text
    finally:
        first.kill()
        first.join()
    # the lock of a process that was killed is free
    assert (run / LOCK).exists()
    second = start_command(resume, tmp_path / "printed", ENVIRONMENT)
    while _signed_by(run) != second.pid:
        time.sleep(0.01)
        assert second.is_alive(), (tmp_path / "printed").read_text()
    second.kill()
    second.join()


def _signed_by(run: Path) -> int | None:
    try:
        signed: int = json.loads((run / LOCK).read_text())["pid"]
    except (OSError, ValueError):
        return None
    return signed
