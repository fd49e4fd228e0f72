import hashlib
from pathlib import Path

import pytest

from lazygnn.data.checksums import RECORD, Checksums
from lazygnn.errors import GraphError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a").write_text("first")
    (tmp_path / "b").write_text("second")
    Checksums(tmp_path).record(["raw/a"])
    Checksums(tmp_path).record(["b"])
    return tmp_path


def test_files_are_recorded_as_sha256sum_does(folder: Path) -> None:
    lines = [f"{hashlib.sha256(text).hexdigest()}  {path}" for text, path in ((b"second", "b"), (b"first", "raw/a"))]
    assert (folder / RECORD).read_text().splitlines() == lines
    Checksums(folder).check()


def test_a_file_that_changed_is_named(folder: Path) -> None:
    (folder / "raw" / "a").write_text("fIrst")
    with pytest.raises(GraphError, match=r"raw/a` is not as it was downloaded: .*; delete it to download it again, or"):
        Checksums(folder).check()
    Checksums(folder).record(["raw/a"])
    Checksums(folder).check()


def test_missing_and_other_files_pass(folder: Path) -> None:
    (folder / "b").unlink()
    (folder / "c").write_text("by hand")
    Checksums(folder).check()
    Checksums(folder / "nothing").check()


@pytest.mark.parametrize("content", [b"hello\n", b"\xff\xfe", b"0" * 64 + b" raw/a\n"])
def test_a_damaged_record_is_refused(folder: Path, content: bytes) -> None:
    (folder / RECORD).write_bytes(content)
    with pytest.raises(GraphError, match=rf"{RECORD}` .*; delete it, with the files that it lists"):
        Checksums(folder).check()


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("first")
    (tmp_path / RECORD).mkdir()
    with pytest.raises(GraphError, match=rf"could not write `.*{RECORD}`"):
        Checksums(tmp_path).record(["a"])
    with pytest.raises(GraphError, match=r"missing` cannot be read \(No such file"):
        Checksums(tmp_path).record(["missing"])
