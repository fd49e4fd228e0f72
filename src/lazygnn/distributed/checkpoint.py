"""Checkpoints of all ranks, by `torch.distributed.checkpoint`.

Rows of histories are saved part by part, each under a name of its own, by the rank that owns the part. Another number
of ranks therefore finds its parts by name. A checkpoint is complete when its folder has its final name. Its state has
the digests of all files, which are compared before they are read. Its metadata are pickled by torch, so load only
checkpoints from a trusted source.
"""

import hashlib
import logging
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from lazygnn.distributed.group import Ranks
from lazygnn.distributed.trainer import RankTrainer
from lazygnn.errors import CheckpointError
from lazygnn.files import discard, sync
from lazygnn.run.record import read_sealed, seal

logger = logging.getLogger(__name__)

STATE, FORMAT = "state.json", "lazygnn-rank-checkpoint"
_NAME = re.compile(r"ranks-([0-9]{9,})")
# what torch writes beside the files of the ranks
_METADATA = ".metadata"
# what a history has besides rows
_COUNTERS = ("norms", "num_pushes", "complete")


class RankCheckpoints:
    """A folder with the newest checkpoints of one run, written by all ranks.

    Args:
        path: The folder, which all ranks see.
        ranks: All ranks; each of them calls the same methods.
        keep: The number of checkpoints to keep.
    """

    def __init__(self, path: Path, ranks: Ranks, *, keep: int = 2) -> None:
        self.path, self.ranks, self.keep = path, ranks, keep

    def save(self, trainer: RankTrainer) -> None:
        """Writes a checkpoint and then removes older ones.

        Raises:
            CheckpointError: A rank could not write its files; earlier checkpoints are unchanged.
        """
        tensors, state = trainer.checkpoint()
        final = self.path / f"ranks-{trainer.num_batches:09d}"
        unfinished = final.with_name(f"{final.name}.tmp")
        with self.ranks.agreeing():
            if self.ranks.is_first:
                self.path.mkdir(exist_ok=True)
                discard(unfinished)
                unfinished.mkdir()
        try:
            writer = FileSystemWriter(unfinished, thread_count=1)
            with self.ranks.naming(), _without_advice():
                save(_named(trainer, tensors), storage_writer=writer, no_dist=self.ranks.size == 1)
        except (OSError, CheckpointException) as error:
            reason = " ".join(str(error).split())[-300:]
            raise CheckpointError(
                f"cannot save `{final}`: {reason}; free some space or make the folder writable"
            ) from error
        with self.ranks.agreeing():
            # each rank those that it has written, which another host may not see yet
            own = {file.name: _digest(file) for file in unfinished.glob(f"__{self.ranks.rank}_*")}
            if self.ranks.is_first:
                own[_METADATA] = _digest(unfinished / _METADATA)
        digests = {name: digest for each in self.ranks.gather(own) for name, digest in each.items()}
        with self.ranks.agreeing():
            if self.ranks.is_first:
                record = {"format": FORMAT, **state, "parts": trainer.num_parts, "digests": digests}
                (unfinished / STATE).write_bytes(seal(record))
                sync(unfinished)
                discard(final)
                unfinished.rename(final)
                sync(self.path)
                for old in self._complete()[self.keep :]:
                    shutil.rmtree(old, ignore_errors=True)

    def restore(self, trainer: RankTrainer) -> bool:
        """Loads the newest checkpoint that can be read into a trainer, whatever number of ranks has written it.

        Returns:
            Whether there was one.
        """
        names = self.ranks.from_first([folder.name for folder in self._complete()])
        reasons: list[str] = []
        for name in names:
            failures = self._failures(self._find_damage(self.path / name))
            failures = failures or self._failures(self._try(trainer, self.path / name))
            if not failures:
                return True
            reasons.append(f"{name}: {failures[0]}")
            if self.ranks.is_first:
                logger.warning("skipping checkpoint `%s`: %s", self.path / name, failures[0])
        if reasons:
            raise CheckpointError(
                f"`{self.path}` has no valid checkpoint: {'; '.join(reasons)}; restore the folder from a backup, or "
                "remove it and train from scratch"
            )
        return False

    def _failures(self, own: str | None) -> list[str]:
        """Returns why a checkpoint cannot be loaded, of all ranks."""
        return [each for each in self.ranks.gather(own) if each is not None]

    def _find_damage(self, folder: Path) -> str | None:
        """Compares the digests of the state and of a share of the files; returns what does not match, or `None`."""
        try:
            digests = _read_state(folder)["digests"]
            for name in sorted(digests)[self.ranks.rank :: self.ranks.size]:
                if _digest(folder / name) != digests[name]:
                    return f"`{name}` is corrupt: its digest does not match"
        except (OSError, KeyError, CheckpointError) as error:
            return str(error)
        return None

    def _try(self, trainer: RankTrainer, folder: Path) -> str | None:
        """Loads a checkpoint; returns why it cannot be loaded, or `None`."""
        tensors, _ = trainer.checkpoint()
        try:
            state = _read_state(folder)
            if state["parts"] != trainer.num_parts:
                return f"it has {state['parts']} parts, and the graph {trainer.num_parts}"
            reader = FileSystemReader(folder)
            wanted = _named(trainer, tensors) | _others(reader, tensors)
            with _without_advice():
                load(wanted, storage_reader=reader, no_dist=True)
            rows = {name: value for name, value in tensors.items() if _is_rows(name)}
            trainer.restore(rows | {name: value for name, value in wanted.items() if "/" not in name}, state)
        except (OSError, ValueError, KeyError, RuntimeError, CheckpointError, CheckpointException) as error:
            return " ".join(str(error).split())[-300:]
        return None

    def _complete(self) -> list[Path]:
        """Returns the complete checkpoints, newest first."""
        if not self.path.is_dir():
            return []
        found = [folder for folder in self.path.iterdir() if _NAME.fullmatch(folder.name)]
        return sorted(found, key=lambda folder: int(folder.name.removeprefix("ranks-")), reverse=True)


def _read_state(folder: Path) -> dict[str, Any]:
    return read_sealed(folder / STATE, FORMAT, "the state of a checkpoint")


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _without_advice() -> Iterator[None]:
    """Silences torch where a rank reads or writes for itself on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _named(trainer: RankTrainer, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Returns tensors by the names of a checkpoint: rows part by part, everything else as it is."""
    named: dict[str, Any] = {name: value for name, value in tensors.items() if not _is_rows(name)}
    for name, value in tensors.items():
        if _is_rows(name):
            named |= {f"{name}/{part.number}": value[part.rows] for part in trainer.parts.parts}
    return named


def _others(reader: FileSystemReader, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns memory for the tensors of a checkpoint that all ranks share, such as those of the optimizer."""
    described = reader.read_metadata().state_dict_metadata
    return {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in described.items()
        if isinstance(entry, TensorStorageMetadata) and "/" not in name and name.partition(".")[0] in _SHARED
    } | {name: torch.empty_like(value, device="cpu") for name, value in tensors.items() if name.startswith("model.")}


# groups of tensors that may be absent from a trainer that has not taken a step
_SHARED = ("best", "optimizer", "losses", "random")


def _is_rows(name: str) -> bool:
    return name.startswith("history.") and not name.endswith(_COUNTERS)
