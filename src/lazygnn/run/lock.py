"""One process per folder: a lock of the operating system, on a file that names the process."""

import errno
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from lazygnn.errors import ConfigError, LockedError, reason
from lazygnn.files import remove_unfinished
from lazygnn.untrusted.text import parse_json

logger = logging.getLogger(__name__)

LOCK = "lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# a process that has just taken a lock writes its name within this time
_SECONDS_TO_SIGN = 0.5


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds a folder for this process and creates it if it is missing.

    The lock ends with the process, however that ends, so that a lock that was left is free. Files that a crash has left
    unfinished are removed.

    Raises:
        LockedError: Another process holds the folder.
    """
    path = folder.absolute() / LOCK
    try:
        file = _take(path)
    except OSError as error:
        raise ConfigError(
            f"cannot lock `{folder}`: {reason(error)}; make it writable or choose another folder"
        ) from error
    try:
        with suppress(OSError):
            remove_unfinished(path.parent)
        yield
    finally:
        with suppress(OSError):
            # the folder may have been removed, and another process may have made it again
            if _is_at(file, path):
                path.unlink()
        os.close(file)


def _take(path: Path) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            _lock(file, path)
            if _is_at(file, path):
                _sign(file)
                return file
        except BaseException:
            os.close(file)
            raise
        # the holder has removed the file before the lock was free
        os.close(file)


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(
            f"`{path.parent}` is in use by {_holder(file)}; wait until it ends, or choose another folder"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        logger.warning("the file system of `%s` has no locks; let one process at a time train there", path.parent)


def _sign(file: int) -> None:
    record = {"host": socket.gethostname(), "pid": os.getpid(), "started": datetime.now().isoformat(" ", "seconds")}
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(record).encode() + b"\n", 0)


def _holder(file: int) -> str:
    deadline = time.monotonic() + _SECONDS_TO_SIGN
    while (record := _record(file)) is None:
        if time.monotonic() > deadline:
            return "another process"
        time.sleep(0.01)
    return f"process {record['pid']} on host `{record['host']}`, which started at {record['started']}"


def _record(file: int) -> dict[str, Any] | None:
    try:
        record = parse_json(os.pread(file, 4096, 0))
    except ValueError:
        return None
    return record if isinstance(record, dict) and record.keys() >= {"host", "pid", "started"} else None


def _is_at(file: int, path: Path) -> bool:
    """Returns whether an open file is the one that a path names."""
    try:
        return os.path.samestat(os.fstat(file), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False
