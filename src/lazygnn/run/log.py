"""The log of a run: one JSON line per epoch."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lazygnn.errors import CheckpointError
from lazygnn.files import write_file
from lazygnn.training.trainer import EpochReport

_FIELDS = {"epoch", "loss", "seconds", "scores"}


class RunLog:
    """A file to which every epoch adds a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, report: EpochReport) -> None:
        """Adds the line of an epoch."""
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(report)) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """Returns the lines; omits a last line that a crash has cut off."""
        try:
            lines = self.path.read_text().splitlines() if self.path.is_file() else []
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"cannot read `{self.path}`: {error}") from error
        reports = []
        for line in lines:
            try:
                report = json.loads(line)
            except json.JSONDecodeError:
                break
            if not isinstance(report, dict) or not report.keys() >= _FIELDS:
                raise CheckpointError(f"`{self.path}` has a line that is not an epoch: {line[:40]}")
            reports.append(report)
        return reports

    def rewind(self, epoch: int) -> None:
        """Removes the lines after an epoch, which a resumed run will write again."""
        kept = [json.dumps(line) + "\n" for line in self.read() if line["epoch"] <= epoch]
        write_file(self.path, "".join(kept).encode())
