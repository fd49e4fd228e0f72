"""Errors of the operating system at the writes of a short run: one line, and a folder that resumes or starts over."""

import errno
import io
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.cli import main
from lazygnn.run.folder import CONFIG, LOG, RESULT, WEIGHTS

CODES = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EACCES)
WRITES = ((os, "open"), (os, "mkdir"), (os, "replace"), (os, "fsync"), (os, "ftruncate"), (os, "pwrite"), (io, "open"))
OPTIONS = ("epochs=2", "hidden_channels=4", "checkpoint_every=1", "history=disk", "num_parts=2", "partition=random")


class Faults:
    """Makes the write with a number fail; counts the writes."""

    def __init__(self, patch: pytest.MonkeyPatch, failing: int = 0, code: int = errno.EIO) -> None:
        self.count, self.failing, self.code = 0, failing, code
        for module, name in WRITES:
            patch.setattr(module, name, self._counted(getattr(module, name), module.__name__, name))

    def _counted(self, call: Callable[..., Any], module: str, name: str) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if _writes(module, name, args):
                self.count += 1
                if self.count == self.failing:
                    raise OSError(self.code, os.strerror(self.code))
            return call(*args, **options)

        return counted


def _writes(module: str, name: str, args: tuple[Any, ...]) -> bool:
    if name != "open":
        return True
    if module == "os":
        return bool(args[1] & os.O_CREAT)
    return not set(str(args[1] if len(args) > 1 else "r")).isdisjoint("wxa")


@pytest.fixture
def call(
    tmp_path: Path, block_arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str]]:
    """Calls the command line; returns its status and what it says on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LAZYGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("lazygnn.commands.training.plot_curves", lambda *_: None)
    np.savez(tmp_path / "block.npz", **block_arrays)

    def called(*args: object) -> tuple[object, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["lazygnn", *map(str, args)])
            with pytest.raises(SystemExit) as stop:
                main()
        return stop.value.code, capsys.readouterr().err

    return called


def start(run: Path) -> list[object]:
    options = [part for pair in OPTIONS for part in ("--set", pair)]
    return ["train", "lazygnn", "block.npz", "--out", run, "--quiet", "--device", "cpu", *options]


def outcome(run: Path) -> tuple[bytes, list[Any], list[Any]]:
    log = [json.loads(line) for line in (run / LOG).read_text().splitlines()]
    result = json.loads((run / RESULT).read_text())
    kept = [result[name] for name in ("val", "test", "epochs", "best_epoch")]
    return (run / WEIGHTS).read_bytes(), [line | {"seconds": 0} for line in log], kept


def fail_and_recover(call: Callable[..., tuple[object, str]], tmp_path: Path, share: float) -> int:
    """Lets a share of the writes fail, each in a run of its own; returns their number."""
    straight = tmp_path / "straight"
    # fills the cache of partitions
    assert call(*start(tmp_path / "first"))[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch)
        assert call(*start(straight))[0] == 0
    expected, draw, tried = outcome(straight), random.Random(0), 0
    for number in range(1, faults.count + 1):
        if draw.random() >= share:
            continue
        run, code = tmp_path / f"run-{number}", CODES[number % len(CODES)]
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, number, code)
            status, said = call(*start(run))
        where = f"write {number}: {errno.errorcode[code]}: {said}"
        # a checkpoint that cannot be written is a warning
        assert status in (0, 2), where
        if status == 2:
            line = said.splitlines()[-1]
            assert line.startswith("error: "), where
            assert os.strerror(code) in line, where
            assert str(run) in line, where
        again = ["train", "--resume", run, "--quiet"] if (run / CONFIG).exists() else start(run)
        status, said = call(*again)
        assert status == 0, f"{where}; then {said}"
        assert outcome(run) == expected, where
        tried += 1
    return tried


def test_a_tenth_of_the_writes_can_fail(call: Callable[..., tuple[object, str]], tmp_path: Path) -> None:
    assert fail_and_recover(call, tmp_path, 0.12) > 5


@pytest.mark.soak
def test_every_write_can_fail(call: Callable[..., tuple[object, str]], tmp_path: Path) -> None:
    assert fail_and_recover(call, tmp_path, 1.0) > 50
