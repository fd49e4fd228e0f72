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


def test_a_log_that_is_cut_anywhere_is_exact_after_a_resume(log: RunLog) -> None:
    for epoch in (1, 2, 3):
        log.append(report(epoch))
    whole = log.path.read_bytes()
    ends = [position + 1 for position, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(len(whole) + 1):
        log.path.write_bytes(whole[:length])
        # a line is complete without the character that ends it
        complete = sum(length >= end - 1 for end in ends)
        assert [line["epoch"] for line in log.read()] == [1, 2, 3][:complete]
        log.rewind(complete)
        for epoch in range(complete + 1, 4):
            log.append(report(epoch))
        assert log.path.read_bytes() == whole


def test_a_damaged_line_is_named_or_written_again(log: RunLog) -> None:
    for epoch in range(1, 5):
        log.append(report(epoch))
    lines = log.path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:2], b"\xff" + lines[2][1:], lines[3]])
    for epoch in range(5):
        log.path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"line 3 of `.*log.jsonl` is not an epoch: .*; restore the file, or"):
            log.read()
        if epoch < 3:
            log.rewind(epoch)
            assert log.path.read_bytes() == b"".join(lines[:epoch])
        else:
            with pytest.raises(CheckpointError, match="line 3 of"):
                log.rewind(epoch)
            assert log.path.read_bytes() == damaged


def test_lost_lines_are_a_warning(log: RunLog, caplog: pytest.LogCaptureFixture) -> None:
    log.append(report(1))
    log.rewind(3)
    assert caplog.messages == [f"`{log.path}` has lost 2 of the first 3 epochs"]
    assert [line["epoch"] for line in log.read()] == [1]


def test_a_link_is_not_followed(log: RunLog, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    log.path.symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match=r"'.*log.jsonl'"):
        log.append(report(1))
    assert (tmp_path / "kept").read_text() == "kept"


@pytest.mark.parametrize("content", [b"[]\n", b"{}\n", b"3\n", b"\xff\xfe\n"])
def test_a_file_that_is_not_a_log_is_a_checkpoint_error(log: RunLog, content: bytes) -> None:
    log.path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"`.*log.jsonl`"):
        log.read()
