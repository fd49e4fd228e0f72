"""Atomic writes: the old content or the new one, never anything between."""

from pathlib import Path

import pytest

from lazygnn.files import discard, replaced, write_file


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with replaced(path) as unfinished:
        unfinished.write_text("half")
        assert not path.exists()
        unfinished.write_text("whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def fail_to_write(path: Path, kind: str) -> None:
    with replaced(path) as unfinished:
        if kind == "folder":
            unfinished.mkdir()
            unfinished = unfinished / "part"
        unfinished.write_text("half")
        raise OSError("full")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_failure_leaves_what_was_there(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "kept"
    write_file(path, b"old")
    with pytest.raises(OSError, match="full"):
        fail_to_write(path, kind)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept"
    write_file(path, b"old")
    write_bytes = Path.write_bytes

    def fail(self: Path, content: bytes) -> int:
        write_bytes(self, content[:1])
        raise OSError("full")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match="full"):
        write_file(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_replaces_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for text in ("old", "new"):
        with replaced(path) as unfinished:
            unfinished.mkdir()
            (unfinished / text).write_text(text)
    assert [file.name for file in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_put_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.suffix == ".part" and target == path:
            raise OSError("busy")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="busy"), replaced(path) as unfinished:
        unfinished.mkdir()
    assert [file.name for file in path.iterdir()] == ["old"]


def test_discard_removes_files_folders_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    for name in ("folder", "file", "missing"):
        discard(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
