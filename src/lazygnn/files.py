"""Atomic writes: a file or a folder appears under its name when it is complete, or not at all."""

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lazygnn.errors import reason

_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{16}\.(part|old)")


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yields an empty file beside `path`, which takes its place if the block succeeds and is removed if not.

    The content is on the disk before the name is, so that a crash leaves either the old or the new content. An
    `OSError` of the block names `path`.
    """
    with _beside(path) as unfinished:
        # a link of that name would not be followed
        file = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            _try_lock(file)
            yield unfinished
            sync(unfinished)
            unfinished.replace(path.absolute())
        finally:
            os.close(file)


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside `path`, which takes its place if the block succeeds and is removed if not."""
    with _beside(path) as unfinished:
        unfinished.mkdir()
        yield unfinished
        _replace_folder(unfinished, path.absolute())


def write_file(path: Path, content: bytes) -> None:
    """Writes a whole file."""
    with replaced(path) as unfinished:
        unfinished.write_bytes(content)


def is_unfinished(path: Path) -> bool:
    """Returns whether a name is that of a file or folder that a crash has left unfinished."""
    return _UNFINISHED.fullmatch(path.name) is not None


def remove_unfinished(folder: Path) -> None:
    """Removes the files that crashes have left unfinished in a folder, but none that is being written."""
    for path in folder.iterdir():
        if is_unfinished(path) and path.is_file() and not path.is_symlink():
            with suppress(FileNotFoundError):
                _remove_unless_locked(path)


def discard(path: Path) -> None:
    """Removes a file or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flushes a file, or the names in a folder, to the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Makes an `OSError` of the block name `path`, if it names no file or one that is not finished."""
    try:
        yield
    except (ConnectionError, TimeoutError):
        # not of a file
        raise
    except OSError as error:
        named = error.filename is not None and not str(error.filename).startswith(f"{path.with_name('.' + path.name)}.")
        # numpy reports a short write in words, without a number; other kinds of errors mean more than their number
        if named or (error.errno is None and type(error) is not OSError):
            raise
        raise OSError(error.errno or errno.EIO, reason(error), str(path)) from error


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    path = path.absolute()
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        try:
            yield unfinished
            sync(path.parent)
        finally:
            # does not exist if the block succeeded
            discard(unfinished)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # another process holds it, or the file system has no locks
        return False
    return True


def _remove_unless_locked(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if _try_lock(file):
            path.unlink()
    finally:
        os.close(file)


def _replace_folder(new: Path, path: Path) -> None:
    for file in (*new.rglob("*"), new):
        sync(file)
    if not path.exists():
        new.rename(path)
        return
    # a folder that is not empty cannot be replaced in one step
    earlier = new.with_suffix(".old")
    path.rename(earlier)
    try:
        new.rename(path)
    except OSError:
        earlier.rename(path)
        raise
    discard(earlier)
