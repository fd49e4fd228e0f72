import json
from pathlib import Path

import pytest

from lazygnn.errors import CheckpointError
from lazygnn.run.log import RunLog
from lazygnn.training import EpochReport


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    return RunLog(tmp_path / "log.jsonl")


def report(epoch: int) -> EpochReport:
    return EpochReport(epoch, 1 / epoch, 0.01 * epoch, 0.1, {"val": 0.75} if epoch % 2 == 0 else None)


def test_every_epoch_is_a_line_of_json(log: RunLog) -> None:
    assert log.read() == []
    for epoch in (1, 2):
        log.append(report(epoch))
    first, second = log.read()
    assert (first["epoch"], first["loss"], first["scores"]) == (1, 1.0, None)
    assert (second["epoch"], second["seconds"], second["scores"]) == (2, 0.02, {"val": 0.75})
    assert [json.loads(line) for line in log.path.read_text().splitlines()] == [first, second]


def test_a_line_cut_off_by_a_crash_is_omitted(log: RunLog) -> None:
    log.append(report(1))
    with log.path.open("a") as file:
        file.write('{"epoch": 2, "lo')
    assert [line["epoch"] for line in log.read()] == [1]


def test_rewinding_removes_later_epochs_and_a_line_cut_off(log: RunLog) -> None:
    for epoch in (1, 2, 3):
        log.append(report(epoch))
    kept = log.read()[:2]
    with log.path.open("a") as file:
        file.write('{"epoch": 4, "lo')
    log.rewind(2)
    assert log.read() == kept
    log.append(report(3))
    assert [line["epoch"] for line in log.read()] == [1, 2, 3]


def test_a_failed_rewind_leaves_the_log(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for epoch in (1, 2, 3):
        log.append(report(epoch))
    before = log.path.read_bytes()

    def fail(path: Path, target: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        log.rewind(1)
    assert log.path.read_bytes() == before
    assert list(log.path.parent.iterdir()) == [log.path]


@pytest.mark.parametrize("content", [b"[]\n", b"{}\n", b"3\n", b"\xff\xfe\n"])
def test_a_file_that_is_not_a_log_is_a_checkpoint_error(log: RunLog, content: bytes) -> None:
    log.path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"`.*log.jsonl`"):
        log.read()
