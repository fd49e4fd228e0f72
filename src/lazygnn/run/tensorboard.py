"""The log of a run for TensorBoard: loss, learning rate, time and scores of every epoch."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from lazygnn.errors import ConfigError
from lazygnn.training.trainer import EpochReport


def require_tensorboard() -> None:
    """Refuses to start without the package."""
    if find_spec("tensorboard") is None:
        raise ConfigError(
            "`logger` is `tensorboard`, but TensorBoard is not installed; install it with "
            "`pip install 'lazygnn[tensorboard]'`, or omit `logger`"
        )


class TensorBoardLog:
    """A context manager that writes event files.

    Args:
        path: The folder. What an earlier process left there is replaced by `lines`, so that no step is there twice.
        lines: The epochs so far, as in the log of the run.
    """

    def __init__(self, path: Path, lines: Iterable[Mapping[str, Any]] = ()) -> None:
        require_tensorboard()
        # takes a second, which other runs need not wait for
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(path, ignore_errors=True)
        self._writer = SummaryWriter(str(path))
        for line in lines:
            self._write(line)

    def __enter__(self) -> "TensorBoardLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def append(self, report: EpochReport) -> None:
        """Adds an epoch, which is on the disk afterwards."""
        self._write(asdict(report))
        self._writer.flush()

    def _write(self, line: Mapping[str, Any]) -> None:
        values = {name: line[name] for name in ("loss", "lr", "seconds") if name in line}
        for group in ("scores", "laziness"):
            values |= {f"{group}/{name}": value for name, value in (line.get(group) or {}).items()}
        for name, value in values.items():
            self._writer.add_scalar(name, value, line["epoch"])
