"""The run folder: the resolved configuration, the best weights and the result; where log and checkpoints are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.files import write_file
from lazygnn.run.log import RunLog

CONFIG, LOG, WEIGHTS, RESULT, CURVES = "config.json", "log.jsonl", "best.safetensors", "result.json", "curves.png"
CHECKPOINTS, HISTORIES, CHOSEN, REPORT = "checkpoints", "histories", "chosen.json", "report.json"


class Run:
    """The folder of one training run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = RunLog(path / LOG)

    @staticmethod
    def create(path: Path, config: Config) -> "Run":
        """Creates a new run folder; refuses a folder that is not empty, so that nothing is lost."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"`{path}` exists and is not empty; choose another `--out` or remove it")
        try:
            write_file(path / CONFIG, (config.record() + "\n").encode())
        except OSError as error:
            raise ConfigError(f"cannot write the run folder `{path}`: {error}; choose another `--out`") from error
        return Run(path)

    @staticmethod
    def open(path: Path) -> "Run":
        """Opens the folder of an earlier run."""
        if not (path / CONFIG).is_file():
            raise CheckpointError(
                f"`{path}` is not a run folder: it has no `{CONFIG}`; give a folder that `train` wrote"
            )
        return Run(path)

    def config(self, read: Callable[[dict[str, Any]], Config]) -> Config:
        """Returns the configuration that the run was started with; `read` is `lazygnn.methods.read_config`."""
        content = self._read_json(CONFIG)
        try:
            return read(content)
        except ConfigError as error:
            raise CheckpointError(f"`{self.path / CONFIG}` is not the configuration of a run: {error}") from error

    def save_chosen(self, values: dict[str, Any]) -> None:
        """Writes the values that were chosen for options left open, such as `auto`."""
        self._write_json(CHOSEN, values)

    def chosen(self) -> dict[str, Any]:
        """Reads the values that were chosen for options left open; empty before the model is built."""
        return self._read_json(CHOSEN) if (self.path / CHOSEN).is_file() else {}

    def save_weights(self, weights: dict[str, Tensor]) -> None:
        """Writes the best weights."""
        # `save_file` would make them readable for the owner only
        write_file(self.path / WEIGHTS, save({name: value.contiguous().cpu() for name, value in weights.items()}))

    def load_weights(self) -> dict[str, Tensor]:
        """Reads the best weights, which are written when training ends."""
        if not (self.path / WEIGHTS).exists() and not (self.path / RESULT).exists():
            raise CheckpointError(
                f"run `{self.path}` has no weights yet, since its training has not ended; "
                f"resume it with `lazygnn train --resume {self.path}`"
            )
        try:
            return load_file(self.path / WEIGHTS)
        except (OSError, SafetensorError, ValueError) as error:
            raise CheckpointError(
                f"cannot read `{self.path / WEIGHTS}`: {error}; restore it with `lazygnn train --resume {self.path}`"
            ) from error

    def save_result(self, result: dict[str, Any]) -> None:
        """Writes the final scores."""
        self._write_json(RESULT, result)

    def result(self) -> dict[str, Any]:
        """Reads the final scores; empty before training has ended."""
        return self._read_json(RESULT) if (self.path / RESULT).is_file() else {}

    def save_report(self, report: dict[str, Any]) -> None:
        """Writes the report of an evaluation."""
        self._write_json(REPORT, report)

    def report(self) -> dict[str, Any]:
        """Reads the report of the last evaluation that was asked for one."""
        if not (self.path / REPORT).is_file():
            raise CheckpointError(
                f"run `{self.path}` has no report; write one with `lazygnn evaluate {self.path} --report`"
            )
        return self._read_json(REPORT)

    def has_ended(self) -> bool:
        """Returns whether result and weights exist and can be read, so that nothing is left to train."""
        try:
            self.load_weights()
            return bool(self.result())
        except CheckpointError:
            return False

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        write_file(self.path / name, (json.dumps(content, indent=2) + "\n").encode())

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read `{self.path / name}`: {error}") from error
        if not isinstance(content, dict):
            raise CheckpointError(f"`{self.path / name}` does not hold a JSON object; it was not written by lazygnn")
        return content
