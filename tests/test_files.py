"""Atomic writes: the old content or the new one, never anything between."""

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lazygnn.files import discard, is_unfinished, naming, remove_unfinished, replaced, replaced_folder, write_file


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with replaced(path) as unfinished:
        unfinished.write_text("half")
        assert not path.exists()
        unfinished.write_text("whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def fail_to_write(path: Path, kind: str) -> None:
    with replaced_folder(path) if kind == "folder" else replaced(path) as unfinished:
        (unfinished / "part" if kind == "folder" else unfinished).write_text("half")
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
        with replaced_folder(path) as unfinished:
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
    with pytest.raises(OSError, match="busy"), replaced_folder(path) as unfinished:
        (unfinished / "new").touch()
    assert [file.name for file in path.iterdir()] == ["old"]


def test_discard_removes_files_folders_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    for name in ("folder", "file", "missing"):
        discard(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("writer", [replaced, replaced_folder])
def test_a_link_under_the_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: Callable[[Path], AbstractContextManager[Path]]
) -> None:
    (tmp_path / "kept").mkdir() if writer is replaced_folder else (tmp_path / "kept").write_text("kept")
    # an attacker who could guess the name
    monkeypatch.setattr(secrets, "token_hex", lambda size: "0" * 2 * size)
    (tmp_path / f".new.{'0' * 16}.part").symlink_to(tmp_path / "kept")
    with pytest.raises(FileExistsError), writer(tmp_path / "new") as unfinished:
        raise AssertionError(unfinished)
    assert (tmp_path / "kept").is_dir() or (tmp_path / "kept").read_text() == "kept"
    assert not (tmp_path / "new").exists()


def test_a_link_at_the_name_itself_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "new").symlink_to(tmp_path / "kept")
    write_file(tmp_path / "new", b"new")
    assert (tmp_path / "kept").read_text() == "kept"
    assert not (tmp_path / "new").is_symlink()


def test_the_name_of_an_unfinished_file_is_known(tmp_path: Path) -> None:
    with replaced(tmp_path / "a.b") as unfinished:
        assert is_unfinished(unfinished)
    for name in ("a.b", ".a.part", "..part", ".a.b.0123456789abcde.part"):
        assert not is_unfinished(tmp_path / name)


def test_only_what_a_crash_has_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".a.0123456789abcdef.part"
    for name in (left.name, "a", ".b.part"):
        (tmp_path / name).touch()
    # the only copy of a folder, after a crash between two renames
    (tmp_path / ".folder.0123456789abcdef.old").mkdir()
    with replaced(tmp_path / "new") as unfinished:
        kept = {file.name for file in tmp_path.iterdir()} - {left.name}
        remove_unfinished(tmp_path)
        assert {file.name for file in tmp_path.iterdir()} == kept
        assert unfinished.name in kept
    assert (tmp_path / "new").exists()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EACCES])
def test_an_error_names_the_file_and_keeps_its_kind(tmp_path: Path, code: int) -> None:
    path = tmp_path / "file"
    for name in (None, str(tmp_path / ".file.0123456789abcdef.part")):
        with pytest.raises(OSError) as caught, naming(path):
            raise OSError(code, os.strerror(code), name)
        assert (caught.value.errno, caught.value.filename) == (code, str(path))
        assert type(caught.value) is type(OSError(code, ""))
    with pytest.raises(OSError) as caught, naming(path):
        raise OSError(code, os.strerror(code), "another file")
    assert caught.value.filename == "another file"


def test_a_short_write_in_words_gets_a_number(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"100 requested and 3 written: '.*file'") as caught, naming(tmp_path / "file"):
        raise OSError("100 requested and 3 written")
    assert caught.value.errno == errno.EIO


@pytest.mark.parametrize("error", [TimeoutError("slow"), ConnectionResetError(errno.ECONNRESET, "reset")])
def test_an_error_of_a_network_is_not_that_of_a_file(tmp_path: Path, error: OSError) -> None:
    with pytest.raises(type(error)) as caught, naming(tmp_path / "file"):
        raise error
    assert caught.value is error
