"""Errors of the operating system at the writes of a short run: one line, and a folder that resumes or starts over."""

import errno
import io
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lazygnn.cli import main
from lazygnn.run.folder import CONFIG
from tests.helpers import say
from tests.setups import SETUPS, differences, outcome, resume, start, write_graph

Call = Callable[..., tuple[object, str]]
CODES = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EACCES)
CALLS = ("open", "mkdir", "replace", "fsync", "ftruncate", "pwrite", "posix_fallocate")
WRITES = (*((os, name) for name in CALLS), (io, "open"))


class Faults:
    """Makes the write with a number fail; counts the writes."""

    def __init__(self, patch: pytest.MonkeyPatch, failing: int = 0, code: int = errno.EIO) -> None:
        self.count, self.failing, self.code = 0, failing, code
        for module, name in WRITES:
            patch.setattr(module, name, self._counted(getattr(module, name), module.__name__, name))

    def add(self) -> None:
        """Counts a write, and fails if it is the one."""
        self.count += 1
        if self.count == self.failing:
            raise OSError(self.code, os.strerror(self.code))

    def _counted(self, call: Callable[..., Any], module: str, name: str) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            if not _writes(module, name, args):
                return call(*args, **options)
            self.add()
            opened = call(*args, **options)
            return Watched(opened, self) if module == "io" else opened

        return counted


class Watched:
    """A file that is open for writing, each of whose writes may fail."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def write(self, content: Any) -> int:
        self._faults.add()
        written: int = self._file.write(content)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _writes(module: str, name: str, args: tuple[Any, ...]) -> bool:
    if name != "open":
        return True
    if module == "os":
        return bool(args[1] & os.O_CREAT)
    return not set(str(args[1] if len(args) > 1 else "r")).isdisjoint("wxa")


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls the command line; returns its status and what it says on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LAZYGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: None)
    write_graph(tmp_path / "small.npz")

    def called(*args: object) -> tuple[object, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["lazygnn", *map(str, args)])
            with pytest.raises(SystemExit) as stop:
                main()
        return stop.value.code, capsys.readouterr().err

    return called


def fail_and_recover(call: Call, tmp_path: Path, name: str, share: float) -> int:
    """Lets a share of the writes fail, each in a run of its own; returns their number."""

    def begin(run: Path) -> list[str]:
        return start(name, tmp_path / "small.npz", run, epochs=2, checkpoint_every=2)

    # fills the cache of partitions
    assert call(*begin(tmp_path / "first"))[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch)
        assert call(*begin(tmp_path / "straight"))[0] == 0
    expected, draw, tried = outcome(tmp_path / "straight"), random.Random(0), 0
    for number in range(1, faults.count + 1):
        if draw.random() >= share:
            continue
        run, code = tmp_path / f"run-{number}", CODES[number % len(CODES)]
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, number, code)
            status, said = call(*begin(run))
        where = f"write {number}: {errno.errorcode[code]}: {said}"
        assert status in (0, 2), where
        # a checkpoint that cannot be written is a warning
        allowed = ["checkpoint"] if status == 0 else []
        if status == 2:
            line = said.splitlines()[-1]
            assert line.startswith("error: "), where
            assert os.strerror(code) in line, where
            assert str(run) in line, where
        status, said = call(*(resume(run) if (run / CONFIG).exists() else begin(run)))
        assert status == 0, f"{where}; then {said}"
        assert differences(expected, outcome(run)) in ([], allowed), where
        shutil.rmtree(run)
        tried += 1
    return tried


def test_some_of_the_writes_fail(call: Call, tmp_path: Path) -> None:
    assert fail_and_recover(call, tmp_path, "disk", 0.05) > 5


@pytest.mark.soak
@pytest.mark.parametrize("name", SETUPS)
def test_writes_of_every_kind_of_training_fail(
    call: Call, tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    # all of them where most files are written
    tried = fail_and_recover(call, tmp_path, name, 1.0 if name == "disk" else 0.2)
    say(request, f"{name}: {tried} writes failed")
    assert tried > 20
