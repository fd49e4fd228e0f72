import errno
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from lazygnn.graph import Graph
from lazygnn.partitioning import engines, process
from lazygnn.partitioning.process import EngineFailure, run_engine


def replace_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """Makes a process run `code` instead of an engine."""
    file = tmp_path / "engine.py"
    file.write_text(code)
    monkeypatch.setattr(engines, "__file__", str(file))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "its process was ended by SIGSEGV$"),
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by SIGKILL, often for lack of memory"),
        ("raise MemoryError('too large')", "MemoryError: too large"),
        ("import sys; print('out of space'); sys.exit(3)", "out of space"),
        ("import sys; sys.exit(3)", "its process has ended with status 3"),
        ("pass", "its process has ended with status 0"),
    ],
    ids=["crash", "killed", "exception", "text", "status", "no result"],
)
def test_the_end_of_a_process_without_a_result_is_explained(
    code: str, message: str, blocks: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_engine(monkeypatch, tmp_path, code)
    with pytest.raises(EngineFailure, match=message):
        run_engine("metis", blocks.adj, 2, 0, None, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_full_disk_is_an_error_with_a_remedy(blocks: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(process, "write_graph_file", full)
    message = rf"No space left on device; `{tmp_path}` must have 0.0 GB for the graph: set LAZYGNN_CACHE to choose"
    with pytest.raises(EngineFailure, match=message):
        run_engine("metis", blocks.adj, 2, 0, None, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_replaced(blocks: Graph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert len(run_engine("metis", blocks.adj, 2, 0, None, tmp_path / "file")) == 600


def test_an_interrupt_ends_the_engine_at_once(blocks: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = tmp_path / "ready"
    # as the engines do, which a signal would not reach while they compute
    replace_engine(
        monkeypatch,
        tmp_path,
        "import os, pathlib, signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        f"pathlib.Path({str(ready)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n",
    )

    def interrupt() -> None:
        while not (ready.exists() and ready.read_text()):
            time.sleep(0.01)
        begun.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    begun: list[float] = []
    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run_engine("metis", blocks.adj, 2, 0, None, tmp_path / "cache")
        assert time.monotonic() - begun[0] < 120
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(ready.read_text()), 0)
    assert list((tmp_path / "cache").iterdir()) == []
