import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path

import pytest

from lazygnn.errors import ConfigError, LockedError
from lazygnn.run.lock import LOCK, locked
from tests.processes import context


def hold(folder: Path, seconds: float) -> None:
    """Holds a folder in a process of its own."""
    with locked(folder):
        time.sleep(seconds)


def _is_signed(lock: Path) -> bool:
    return lock.exists() and lock.read_text().endswith("\n")


def count_up(folder: Path, times: int) -> None:
    """Adds to a number in a file, whose lines are lost if two processes do it at once."""
    done = 0
    while done < times:
        try:
            with locked(folder / "held"):
                number = int((folder / "number").read_text())
                time.sleep(0.001)
                (folder / "number").write_text(str(number + 1))
                done += 1
        except LockedError:
            time.sleep(0.001)


def test_a_second_process_gets_the_host_and_the_process_of_the_first(tmp_path: Path) -> None:
    process = context().Process(target=hold, args=(tmp_path / "run", 600))
    process.start()
    try:
        deadline = time.monotonic() + 120
        # the file is there before its lock is held; who has signed it holds it
        while not _is_signed(tmp_path / "run" / LOCK) and time.monotonic() < deadline:
            time.sleep(0.01)
        message = (
            rf"`{tmp_path}/run` is in use by process {process.pid} on host `{socket.gethostname()}`, which started at "
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d; wait until it ends, or choose another folder"
        )
        with pytest.raises(LockedError, match=message) as caught, locked(tmp_path / "run"):
            pass
        assert isinstance(caught.value, ConfigError)
    finally:
        process.kill()
        process.join()
    # what a killed process has left is free, and is signed again
    assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == process.pid
    with locked(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / LOCK).read_text())["pid"] == os.getpid()
    assert list((tmp_path / "run").iterdir()) == []


def test_one_of_many_holds_a_folder_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    processes = [context().Process(target=count_up, args=(tmp_path, 25)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert (tmp_path / "number").read_text() == "100"


def test_the_lock_of_a_folder_that_was_made_again_is_left_alone(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        (tmp_path / "run" / LOCK).unlink()
        with locked(tmp_path / "run"):
            (tmp_path / "run").rename(tmp_path / "moved")
        # neither of the two processes finds its file
    assert not (tmp_path / "run").exists()
    with locked(tmp_path / "run"):
        (tmp_path / "run" / LOCK).unlink()
        (tmp_path / "run" / LOCK).write_text("of another process")
    assert (tmp_path / "run" / LOCK).read_text() == "of another process"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 3}'])
def test_a_lock_that_names_no_process_is_still_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setattr("lazygnn.run.lock._SECONDS_TO_SIGN", 0.02)
    with locked(tmp_path):
        (tmp_path / LOCK).write_text(content)
        with pytest.raises(LockedError, match="is in use by another process; wait until it ends"), locked(tmp_path):
            pass


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / LOCK).symlink_to(tmp_path / "kept")
    with pytest.raises(ConfigError, match=rf"cannot lock `{tmp_path}`: .*; make it writable"), locked(tmp_path):
        pass
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_file_system_without_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with locked(tmp_path):
        assert (tmp_path / LOCK).exists()
    assert caplog.messages == [f"the file system of `{tmp_path}` has no locks; let one process at a time train there"]
