"""The log of a run: one JSON line per epoch."""

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lazygnn.errors import CheckpointError, reason
from lazygnn.files import naming, sync, write_file
from lazygnn.training.trainer import EpochReport
from lazygnn.untrusted.text import parse_json

logger = logging.getLogger(__name__)

_FIELDS = {"epoch", "loss", "seconds", "scores"}


class RunLog:
    """A file to which every epoch adds a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, report: EpochReport) -> None:
        """Adds the line of an epoch."""
        with naming(self.path):
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            with os.fdopen(file, "ab") as stream:
                stream.write(json.dumps(asdict(report), allow_nan=False).encode() + b"\n")

    def sync(self) -> None:
        """Flushes the lines to the disk, so that a checkpoint that is saved later does not outlive them."""
        if self.path.is_file():
            sync(self.path)

    def read(self) -> list[dict[str, Any]]:
        """Returns the lines; omits a last line that a crash has cut off."""
        return [self._parse(number, line) for number, line in self._lines()]

    def rewind(self, epoch: int) -> None:
        """Removes the lines after an epoch, which a resumed run will write again, and a line that was cut off."""
        kept, last = [], 0
        for number, line in self._lines():
            # what follows is written again, whatever it is
            if last == epoch:
                break
            last = self._parse(number, line)["epoch"]
            if last > epoch:
                break
            kept.append(line + b"\n")
        if len(kept) < epoch:
            logger.warning("`%s` has lost %d of the first %d epochs", self.path, epoch - len(kept), epoch)
        write_file(self.path, b"".join(kept))

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """Yields the complete lines with their numbers, from 1 on."""
        try:
            content = self.path.read_bytes() if self.path.is_file() else b""
        except OSError as error:
            raise CheckpointError(f"cannot read `{self.path}`: {reason(error)}") from error
        *lines, rest = content.split(b"\n")
        # a crash may have cut off no more than the end of the line
        if _report(rest) is not None:
            lines.append(rest)
        yield from enumerate(lines, 1)

    def _parse(self, number: int, line: bytes) -> dict[str, Any]:
        report = _report(line)
        if report is None:
            shown = line[:40].decode(errors="replace")
            raise CheckpointError(
                f"line {number} of `{self.path}` is not an epoch: {shown}; restore the file, or remove that line"
            )
        return report


def _report(line: bytes) -> dict[str, Any] | None:
    try:
        report = parse_json(line)
    except ValueError:
        return None
    return report if isinstance(report, dict) and report.keys() >= _FIELDS and type(report["epoch"]) is int else None
