"""Records: JSON that ends in its own digest, so that any change to it is found, and that of a checkpoint."""

import hashlib
import json
import math
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lazygnn.errors import CheckpointError
from lazygnn.untrusted.text import parse_json

FORMAT, VERSION = "lazygnn-checkpoint", 1
# parsed JSON takes many times the memory of its text, and the file may have been written by anyone
MAX_RECORD = 16 * 2**20
_MAX_DEPTH = 64


def make_record(number: int, tensors: dict[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of a record; refuses a `state` that JSON would not return unchanged.

    Args:
        number: The number of the checkpoint.
        tensors: `size`, `sha256` and `names` of the tensor file.
        state: JSON values: dicts with text keys, lists, text, integers, finite floats, booleans, None.
    """
    content = {"format": FORMAT, "version": VERSION, "number": number, "tensors": tensors, "state": dict(state)}
    _check_value("state", content["state"], _MAX_DEPTH)
    length = len(seal(content))
    if length > MAX_RECORD:
        raise ValueError(f"`state` takes {length:,} bytes as JSON, at most {MAX_RECORD:,}; put arrays in `tensors`")
    return content


def seal(content: dict[str, Any]) -> bytes:
    """Returns the JSON text of a record, which ends in the digest of all before it."""
    body = json.dumps(content, allow_nan=False).encode()[:-1]
    return body + _end_of(body)


def read_record(file: Path) -> dict[str, Any]:
    """Reads the record of a checkpoint and checks its digest, version and fields."""
    content = read_sealed(file, FORMAT, "the record of a checkpoint", _check_version)
    if not _has_all_fields(content):
        raise CheckpointError(f"`{file.name}` is corrupt: its digest does not match")
    return content


def read_sealed(
    file: Path, kind: str, what: str, check: Callable[[Path, object], None] | None = None
) -> dict[str, Any]:
    """Reads a file that `seal` wrote and checks its digest.

    Args:
        file: The file.
        kind: The `format` that it must have.
        what: The file in words.
        check: Called with the file and its `version`, before the digest is compared.
    """
    if file_size(file) > MAX_RECORD:
        raise CheckpointError(f"`{file.name}` is too long for {what}")
    try:
        raw = file.read_bytes()
        content = parse_json(raw)
    except OSError as error:
        raise CheckpointError(f"cannot read `{file.name}`: {error}") from error
    except ValueError as error:
        raise CheckpointError(f"`{file.name}` is corrupt, or not {what}") from error
    if not isinstance(content, dict) or content.get("format") != kind:
        raise CheckpointError(f"`{file.name}` was not written by lazygnn")
    if check is not None:
        check(file, content.get("version"))
    # the end has the same length for every body
    body, end = raw[: -len(_end_of(b""))], raw[-len(_end_of(b"")) :]
    if end != _end_of(body):
        raise CheckpointError(f"`{file.name}` is corrupt: its digest does not match")
    return content


def file_size(file: Path) -> int:
    """Returns the size of a file in bytes; one that is missing, or not a regular file, is a `CheckpointError`."""
    try:
        status = file.stat()
    except FileNotFoundError:
        raise CheckpointError(f"`{file.name}` is missing") from None
    except OSError as error:
        raise CheckpointError(f"cannot read `{file.name}`: {error}") from error
    # reading a pipe or a device might never end
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"`{file.name}` is not a regular file")
    return status.st_size


def is_text(value: str) -> bool:
    """Returns whether a string is valid Unicode, which a lone surrogate is not."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _end_of(body: bytes) -> bytes:
    return b', "sha256": "%s"}\n' % hashlib.sha256(body).hexdigest().encode()


def _check_value(where: str, value: object, depth: int) -> None:
    if depth == 0:
        raise ValueError(f"`{where[:40]}...` is nested more than {_MAX_DEPTH} deep, or contains itself; flatten it")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not is_text(key):
                raise ValueError(f"`{where}` has the key {key!r}; JSON keys are text")
            _check_value(f"{where}.{key}", item, depth - 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_value(f"{where}[{index}]", item, depth - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"`{where}` is {value}, which JSON cannot represent; store None or text instead")
    elif isinstance(value, str) and not is_text(value):
        raise ValueError(f"`{where}` is {value!r}, which is not valid Unicode text")
    elif value is not None and not isinstance(value, str | int | float):
        kind = type(value).__name__
        raise ValueError(f"`{where}` is a {kind}; give JSON values (lists for tuples), and arrays in `tensors`")


def _check_version(file: Path, version: object) -> None:
    if isinstance(version, int) and version > VERSION:
        raise CheckpointError(
            f"`{file.name}` has version {version}, this lazygnn reads {VERSION}; upgrade lazygnn to use it"
        )
    if version != VERSION:
        raise CheckpointError(f"`{file.name}` has the unknown version {version!r}; this lazygnn reads {VERSION}")


def _has_all_fields(content: dict[str, Any]) -> bool:
    tensors = content.get("tensors")
    return (
        isinstance(content.get("number"), int)
        and isinstance(content.get("state"), dict)
        and isinstance(tensors, dict)
        and isinstance(tensors.get("size"), int)
        and isinstance(tensors.get("sha256"), str)
        and isinstance(tensors.get("names"), list)
        and all(isinstance(name, str) for name in tensors["names"])
    )
