"""Checkpoints that survive crashes, full disks and corrupt files.

A checkpoint is a pair: `checkpoint-<number>.safetensors` has the tensors, `checkpoint-<number>.json` is the record with
state and digests. The record is written last and makes the pair valid. Nothing is pickled.
"""

import errno
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lazygnn.errors import CheckpointError
from lazygnn.files import sync
from lazygnn.run.record import make_record, read_record, seal
from lazygnn.run.tensor_file import TensorFile, read_tensors

logger = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NAME = re.compile(r"checkpoint-([0-9]{9}|[1-9][0-9]{9,})\.(?:safetensors|json)(\.tmp)?")


@dataclass(frozen=True)
class Checkpoint:
    """The content of a saved checkpoint.

    The tensors are on the CPU and map the file, which takes no memory until they are read. Copy them to keep them.
    """

    number: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Returns the tensors whose names start with a prefix, without it."""
        return {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}


class CheckpointFolder:
    """A folder with the newest checkpoints of one run; a single process writes it.

    Args:
        path: The folder; the first `save` creates it, but not the folder around it.
        keep: The number of checkpoints to keep.
    """

    def __init__(self, path: Path, *, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"`keep` must be at least 1, got {keep}")
        self.path, self.keep = path, keep
        self._corrupt: set[int] = set()

    def save(self, number: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Writes a checkpoint and, once it is complete, removes older and corrupt ones.

        A number that is saved again is replaced; a crash between its two files loses that number and no other.

        Args:
            number: Step or epoch, not negative; refused if a valid checkpoint with a higher number exists.
            tensors: Strided tensors on any device, of any size; they are not copied as a whole.
            state: JSON values: dicts with text keys, lists, text, integers, finite floats, booleans, None.
        """
        if number < 0:
            raise ValueError(f"`number` must not be negative, got {number}")
        planned = TensorFile.plan(tensors)
        # the digest is not known yet, but its length is
        described = {"size": planned.size, "sha256": "0" * 64, "names": planned.names}
        record = make_record(number, described, state)
        needed = planned.size + len(seal(record))
        self._check_newest(number)
        try:
            # a run folder that was removed is not made again
            self.path.mkdir(exist_ok=True)
            self._remove_temporaries()
            self._check_space(number, needed)
            self._write(number, planned, record)
        except OSError as error:
            raise self._cannot_save(number, needed, error) from error
        finally:
            self._remove_temporaries()
        self._corrupt.discard(number)
        self._remove_old()

    def load_latest(self) -> Checkpoint | None:
        """Loads the newest valid checkpoint, with a warning for every corrupt one; None if none was complete."""
        reasons = []
        for number in self._numbers():
            try:
                return self._load(number)
            except CheckpointError as error:
                logger.warning("skipping checkpoint %d in `%s`: %s", number, self.path, error)
                self._corrupt.add(number)
                reasons.append(str(error))
        if reasons and not self._was_killed_at_first():
            raise CheckpointError(
                f"`{self.path}` has no valid checkpoint: {'; '.join(reasons)}; "
                "restore the folder from a backup, or remove it and train from scratch"
            )
        return None

    def _was_killed_at_first(self) -> bool:
        """Returns whether the only checkpoint has no record, so that none was ever complete."""
        numbers = self._numbers()
        return len(numbers) == 1 and not self._files(numbers[0])[1].exists()

    def _files(self, number: int) -> tuple[Path, Path]:
        stem = f"checkpoint-{number:09d}"
        return self.path / f"{stem}.safetensors", self.path / f"{stem}.json"

    def _numbers(self) -> list[int]:
        """Returns the numbers that have at least one file, newest first."""
        return sorted({int(match[1]) for match in self._matches() if not match[2]}, reverse=True)

    def _matches(self) -> list[re.Match[str]]:
        try:
            names = [file.name for file in self.path.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CheckpointError(f"cannot read the checkpoint folder `{self.path}`: {error}") from error
        return [match for name in names if (match := _NAME.fullmatch(name))]

    def _check_newest(self, number: int) -> None:
        for newer in self._numbers():
            if newer > number and newer not in self._corrupt and self._is_valid(newer):
                raise CheckpointError(
                    f"cannot save checkpoint {number}: `{self.path}` already has {newer}, which would be loaded "
                    "instead; resume from it, or choose another folder"
                )

    def _is_valid(self, number: int) -> bool:
        try:
            self._load(number)
        except CheckpointError:
            self._corrupt.add(number)
            return False
        return True

    def _check_space(self, number: int, needed: int) -> None:
        if shutil.disk_usage(self.path).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._files(number)[0]))

    def _write(self, number: int, planned: TensorFile, record: dict[str, Any]) -> None:
        tensor_file, record_file = files = self._files(number)
        record["tensors"]["sha256"] = _write_temporary(tensor_file, planned.blocks())
        _write_temporary(record_file, [seal(record)])
        # both are on the disk before either gets its name, so that a full disk leaves earlier files unchanged
        if record_file.exists():
            # with the record of other tensors the pair would be corrupt; without one it is not a checkpoint
            record_file.unlink()
            sync(self.path)
        for file in files:
            _temporary(file).replace(file)
            sync(self.path)

    def _cannot_save(self, number: int, needed: int, error: OSError) -> CheckpointError:
        file = self._files(number)[0]
        if error.errno in _FULL:
            why, remedy = "the disk is full", "free that much space, or choose a folder on another disk"
        else:
            why, remedy = str(error), "make the folder writable, or choose another one"
        return CheckpointError(
            f"cannot save `{file}`, which needs {needed:,} bytes: {why}; {remedy}; earlier checkpoints are unchanged"
        )

    def _remove_temporaries(self) -> None:
        # if the folder cannot be listed, the save itself reports it
        with suppress(CheckpointError):
            for match in self._matches():
                if match[2]:
                    _remove(self.path / match[0])

    def _remove_old(self) -> None:
        numbers = self._numbers()
        complete = [n for n in numbers if n not in self._corrupt and all(map(Path.is_file, self._files(n)))]
        for old in sorted(set(numbers) - set(complete[: self.keep])):
            tensor_file, record_file = self._files(old)
            # without its record, a tensor file is not a checkpoint
            _remove(record_file)
            _remove(tensor_file)

    def _load(self, number: int) -> Checkpoint:
        tensor_file, record_file = self._files(number)
        record = read_record(record_file)
        if record["number"] != number:
            raise CheckpointError(f"`{record_file.name}` was renamed: it belongs to checkpoint {record['number']}")
        described = record["tensors"]
        tensors = read_tensors(tensor_file, described["names"], size=described["size"], digest=described["sha256"])
        return Checkpoint(number, tensors, record["state"])


def _temporary(file: Path) -> Path:
    # not a random name, so that the next save replaces a file that a crash has left
    return file.with_name(f"{file.name}.tmp")


def _write_temporary(target: Path, blocks: Iterable[bytes | memoryview]) -> str:
    """Writes the blocks to the disk under a temporary name and returns their digest."""
    digest = hashlib.sha256()
    with _temporary(target).open("xb") as file:
        for block in blocks:
            file.write(block)
            digest.update(block)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _remove(file: Path) -> None:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("cannot remove `%s`: %s", file, error)
