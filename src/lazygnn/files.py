"""Atomic writes: a file or a folder appears under its name when it is complete, or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yields a temporary name beside `path`, which takes its place if the block succeeds and is removed if not.

    The block makes a file or a folder there. The content is on the disk before the name is, so that a crash leaves
    either the old or the new content.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield unfinished
        if unfinished.is_dir():
            _replace_folder(unfinished, path)
        else:
            sync(unfinished)
            unfinished.replace(path)
        sync(path.parent)
    finally:
        # does not exist if the block succeeded
        discard(unfinished)


def write_file(path: Path, content: bytes) -> None:
    """Writes a whole file."""
    with replaced(path) as unfinished:
        unfinished.write_bytes(content)


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


def _replace_folder(new: Path, path: Path) -> None:
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
