"""Checkpoints that survive a crash, a full disk and broken files.

A checkpoint is a pair: `checkpoint-<number>.safetensors` holds the tensors, `checkpoint-<number>.json` is the record
with state and digests. The record appears last and makes the pair valid. Nothing is ever pickled.
"""

import errno
import hashlib
import json
import logging
import math
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lazygnn.errors import CheckpointError

logger = logging.getLogger(__name__)

FORMAT, VERSION = "lazygnn-checkpoint", 1

# of a tensor, this much is in flight at a time
_CHUNK = 8 * 2**20
# what is parsed must fit in memory many times over, whoever wrote it
_MAX_RECORD = _MAX_HEADER = 16 * 2**20
_MAX_DEPTH = 64
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NAME = re.compile(r"checkpoint-([0-9]{9}|[1-9][0-9]{9,})\.(?:safetensors|json)(\.tmp)?")
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class Checkpoint:
    """What was saved under a number.

    The tensors are on the CPU and map the file, which costs no memory until they are read: copy them into place.
    """

    number: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class CheckpointFolder:
    """A folder that holds the newest checkpoints of one run; one process writes it.

    Args:
        path: The folder; the first `save` makes it.
        keep: How many checkpoints stay.
    """

    def __init__(self, path: Path, *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"`keep` must be at least 1, got {keep}")
        self.path, self.keep = path, keep
        self._broken: set[int] = set()

    def save(self, number: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Writes a checkpoint and, once it is whole, removes older ones and broken ones.

        A number saved again is replaced; a crash between its two files costs that number, and no other.

        Args:
            number: Step or epoch, not negative; refused when a good checkpoint with a higher one would outlive it.
            tensors: Strided tensors on any device, of any size; no second copy of them is made.
            state: JSON values: dicts with text keys, lists, text, integers, finite floats, booleans, None.
        """
        if number < 0:
            raise ValueError(f"`number` must not be negative, got {number}")
        plan = _Plan.of(tensors)
        content = _content(number, plan, state)
        # the digest is not known yet, its length is
        needed = plan.size + len(_seal(content))
        self._refuse_to_fall_behind(number)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._remove_temporaries()
            self._check_space(number, needed)
            self._write(number, plan, content)
        except OSError as error:
            raise self._cannot_save(number, needed, error) from error
        finally:
            self._remove_temporaries()
        self._broken.discard(number)
        self._remove_old()

    def load_latest(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None where none was ever saved; broken ones are skipped, loudly."""
        reasons = []
        for number in self._numbers():
            try:
                return self._load(number)
            except CheckpointError as error:
                logger.warning("skipping checkpoint %d in `%s`: %s", number, self.path, error)
                self._broken.add(number)
                reasons.append(str(error))
        if reasons:
            raise CheckpointError(
                f"`{self.path}` holds no checkpoint that can be used: {'; '.join(reasons)}; "
                "restore the folder from a backup, or remove it and train again from scratch"
            )
        return None

    def _files(self, number: int) -> tuple[Path, Path]:
        stem = f"checkpoint-{number:09d}"
        return self.path / f"{stem}.safetensors", self.path / f"{stem}.json"

    def _numbers(self) -> list[int]:
        """The numbers of which at least one file exists, newest first."""
        return sorted({int(match[1]) for match in self._matches() if not match[2]}, reverse=True)

    def _matches(self) -> list[re.Match[str]]:
        try:
            names = [file.name for file in self.path.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"cannot read the checkpoint folder `{self.path}`: {error}") from error
        return [match for name in names if (match := _NAME.fullmatch(name))]

    def _refuse_to_fall_behind(self, number: int) -> None:
        for newer in self._numbers():
            if newer > number and newer not in self._broken and self._is_good(newer):
                raise CheckpointError(
                    f"cannot save checkpoint {number}: `{self.path}` already holds {newer}, which would be loaded in "
                    "its place; resume from there, or choose another folder"
                )

    def _is_good(self, number: int) -> bool:
        try:
            self._load(number)
        except CheckpointError:
            self._broken.add(number)
            return False
        return True

    def _check_space(self, number: int, needed: int) -> None:
        if shutil.disk_usage(self.path).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._files(number)[0]))

    def _write(self, number: int, plan: "_Plan", content: dict[str, Any]) -> None:
        tensor_file, record_file = files = self._files(number)
        digest = _write_temporary(tensor_file, plan.blocks())
        content["tensors"]["sha256"] = digest
        _write_temporary(record_file, [_seal(content)])
        # both are on the disk whole before either gets its name, so running out of space breaks nothing that stood
        for file in files:
            _temporary(file).replace(file)
            _sync_folder(self.path)

    def _cannot_save(self, number: int, needed: int, error: OSError) -> CheckpointError:
        file = self._files(number)[0]
        if error.errno in _FULL:
            why, remedy = "the disk has no room for it", "free that much space, or choose a folder on another disk"
        else:
            why, remedy = str(error), "make the folder writable, or choose another one"
        return CheckpointError(
            f"cannot save `{file}`, which needs {needed:,} bytes: {why}; {remedy}; earlier checkpoints are untouched"
        )

    def _remove_temporaries(self) -> None:
        # when the folder cannot be listed, the error that says so is the one of the save itself
        with suppress(CheckpointError):
            for match in self._matches():
                if match[2]:
                    _discard(self.path / match[0])

    def _remove_old(self) -> None:
        numbers = self._numbers()
        whole = [n for n in numbers if n not in self._broken and all(map(Path.is_file, self._files(n)))]
        for old in sorted(set(numbers) - set(whole[: self.keep])):
            tensor_file, record_file = self._files(old)
            # the record first: without it the rest is no checkpoint
            _discard(record_file)
            _discard(tensor_file)

    def _load(self, number: int) -> Checkpoint:
        tensor_file, record_file = self._files(number)
        content = _read_record(record_file)
        if content["number"] != number:
            raise CheckpointError(f"`{record_file.name}` is the record of checkpoint {content['number']}, renamed")
        _check_digest(tensor_file, content["tensors"]["size"], content["tensors"]["sha256"])
        return Checkpoint(number, _read_tensors(tensor_file, content["tensors"]["names"]), content["state"])


@dataclass(frozen=True)
class _Plan:
    """A safetensors file that is yet to be written.

    `safetensors.torch.save_file` is not enough. Before version 0.8 it made bytes of all tensors first; 0.8 writes them
    from where they stand, but moves all that is on a GPU to the CPU before the first byte, and refuses strided views
    and tensors that share memory. Neither flushes to the disk or tells a digest. A history may fill most of the
    memory, so here a piece of a tensor is copied at a time.
    """

    names: list[str]
    tensors: list[Tensor]
    header: bytes

    @staticmethod
    def of(tensors: Mapping[str, Tensor]) -> "_Plan":
        for name, tensor in tensors.items():
            _check_tensor(name, tensor)
        # wide types first, which keeps each tensor aligned in the file without gaps
        ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
        header, end = {}, 0
        for name, tensor in ordered:
            start, end = end, end + _num_bytes(tensor)
            header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": [*tensor.shape], "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > _MAX_HEADER:
            raise ValueError(f"{len(tensors)} tensors are too many for one file; join some of them")
        return _Plan(list(tensors), [tensor for _, tensor in ordered], len(text).to_bytes(8, "little") + text)

    @property
    def size(self) -> int:
        return len(self.header) + sum(map(_num_bytes, self.tensors))

    def blocks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the file, in order."""
        yield self.header
        for tensor in self.tensors:
            for piece in _pieces(tensor.detach()):
                yield _raw(piece)


def _check_tensor(name: str, tensor: Tensor) -> None:
    if name == "__metadata__" or not _is_text(name):
        raise ValueError(f"{name!r} cannot be the name of a tensor; choose another one")
    if tensor.dtype not in _DTYPES:
        kinds = ", ".join(str(dtype).removeprefix("torch.") for dtype in _DTYPES)
        raise ValueError(f"tensor `{name}` has type {tensor.dtype}; convert it to one of: {kinds}")
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        raise ValueError(f"tensor `{name}` is {tensor.layout} on {tensor.device}; only dense tensors can be saved")


def _num_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Views of at most `_CHUNK` bytes that follow each other in row-major order, whatever the strides."""
    if _num_bytes(tensor) <= _CHUNK:
        yield tensor
        return
    if tensor.is_contiguous():
        tensor = tensor.view(-1)
    rows = max(1, _CHUNK * len(tensor) // _num_bytes(tensor))
    for start in range(0, len(tensor), rows):
        piece = tensor[start : start + rows]
        # a single row may still be too long
        yield from _pieces(piece[0] if rows == 1 else piece)


def _raw(piece: Tensor) -> memoryview:
    flat = piece.cpu().resolve_neg().contiguous().view(-1)
    # a single element passes for contiguous with any stride, but not as bytes
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().data


def _content(number: int, plan: _Plan, state: Mapping[str, Any]) -> dict[str, Any]:
    tensors = {"size": plan.size, "sha256": "0" * 64, "names": plan.names}
    content = {"format": FORMAT, "version": VERSION, "number": number, "tensors": tensors, "state": dict(state)}
    _check_value("state", content["state"], _MAX_DEPTH)
    length = len(_seal(content))
    if length > _MAX_RECORD:
        raise ValueError(f"`state` takes {length:,} bytes as JSON, {_MAX_RECORD:,} at most; put arrays in `tensors`")
    return content


def _check_value(where: str, value: object, depth: int) -> None:
    """Refuses what JSON would not give back as it was."""
    if depth == 0:
        raise ValueError(f"`{where[:40]}...` is nested more than {_MAX_DEPTH} deep, or holds itself; flatten it")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not _is_text(key):
                raise ValueError(f"`{where}` has the key {key!r}; JSON keys are text")
            _check_value(f"{where}.{key}", item, depth - 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_value(f"{where}[{index}]", item, depth - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"`{where}` is {value}, for which JSON has no number; store None or text instead")
    elif isinstance(value, str) and not _is_text(value):
        raise ValueError(f"`{where}` is {value!r}, which is no valid Unicode text")
    elif value is not None and not isinstance(value, str | int | float):
        kind = type(value).__name__
        raise ValueError(f"`{where}` is a {kind}; give JSON values (lists for tuples), and arrays in `tensors`")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _seal(content: dict[str, Any]) -> bytes:
    """JSON that ends in the digest of all before it."""
    body = json.dumps(content, allow_nan=False).encode()[:-1]
    return body + _seal_of(body)


def _seal_of(body: bytes) -> bytes:
    return b', "sha256": "%s"}\n' % hashlib.sha256(body).hexdigest().encode()


def _temporary(file: Path) -> Path:
    return file.with_name(f"{file.name}.tmp")


def _write_temporary(target: Path, blocks: Iterable[bytes | memoryview]) -> str:
    """Brings the blocks to the disk under a temporary name, and gives their digest."""
    digest = hashlib.sha256()
    with _temporary(target).open("xb") as file:
        for block in blocks:
            file.write(block)
            digest.update(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _sync_folder(path: Path) -> None:
    # a new name is on the disk only when the folder is
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _discard(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("cannot remove `%s`: %s", file, error)


def _read_record(file: Path) -> dict[str, Any]:
    if _size(file) > _MAX_RECORD:
        raise CheckpointError(f"`{file.name}` is too long to be the record of a checkpoint")
    try:
        raw = file.read_bytes()
        content = json.loads(raw)
    except OSError as error:
        raise CheckpointError(f"cannot read `{file.name}`: {error}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"`{file.name}` is damaged, or no record of a checkpoint") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"`{file.name}` was not written by lazygnn")
    _check_version(file, content.get("version"))
    # the seal has one length
    body, seal = raw[: -len(_seal_of(b""))], raw[-len(_seal_of(b"")) :]
    if seal != _seal_of(body) or not _has_all_fields(content):
        raise CheckpointError(f"`{file.name}` is damaged: its digest does not match")
    return content


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


def _size(file: Path) -> int:
    try:
        status = file.stat()
    except FileNotFoundError:
        raise CheckpointError(f"`{file.name}` is missing") from None
    except OSError as error:
        raise CheckpointError(f"cannot read `{file.name}`: {error}") from error
    # reading a pipe or a device might never end
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"`{file.name}` is not a plain file")
    return status.st_size


def _check_digest(file: Path, size: int, digest: str) -> None:
    found = _size(file)
    if found != size:
        raise CheckpointError(f"`{file.name}` is damaged: it has {found:,} bytes, its record says {size:,}")
    try:
        with file.open("rb") as stream:
            header = int.from_bytes(stream.read(8), "little")
            stream.seek(0)
            # reads a piece at a time
            same = hashlib.file_digest(stream, "sha256").hexdigest() == digest
    except OSError as error:
        raise CheckpointError(f"cannot read `{file.name}`: {error}") from error
    if not same:
        raise CheckpointError(f"`{file.name}` is damaged: its digest does not match")
    if header > _MAX_HEADER:
        raise CheckpointError(f"`{file.name}` has a header of {header:,} bytes, lazygnn writes {_MAX_HEADER:,} at most")


def _read_tensors(file: Path, names: list[str]) -> dict[str, Tensor]:
    try:
        # maps the file, limits the header, and checks that shapes and offsets fit what is there
        tensors = load_file(file)
    except (SafetensorError, OSError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"`{file.name}` is no readable safetensors file: {error}") from error
    if tensors.keys() != set(names):
        raise CheckpointError(f"`{file.name}` holds other tensors than its record says")
    return {name: tensors[name] for name in names}
