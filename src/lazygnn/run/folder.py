"""A run folder: the resolved configuration, one JSON line per epoch, the best weights, the result, the curves."""

import json
import resource
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.training.trainer import EpochReport

CONFIG, LOG, WEIGHTS, RESULT, CURVES = "config.json", "log.jsonl", "best.safetensors", "result.json", "curves.png"
CHECKPOINTS, HISTORIES, CHOSEN = "checkpoints", "histories", "chosen.json"
_REPORTED = {"epoch", "loss", "seconds", "scores"}


class Run:
    """The folder of one training run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def create(path: Path, config: Config) -> "Run":
        """Starts a new folder; one that already holds a run is refused, so that nothing is lost."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"`{path}` exists and is not empty; choose another `--out` or remove it")
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / CONFIG).write_text(config.record() + "\n")
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
        """Writes what was taken for the options that leave the choice open."""
        self._write_json(CHOSEN, values)

    def chosen(self) -> dict[str, Any]:
        """What was taken for those options; empty before the model is built."""
        return self._read_json(CHOSEN) if (self.path / CHOSEN).is_file() else {}

    def log(self, report: EpochReport) -> None:
        """Adds a line for an epoch."""
        with (self.path / LOG).open("a") as file:
            file.write(json.dumps(asdict(report)) + "\n")

    def history(self) -> list[dict[str, Any]]:
        """The lines of the log; a last line cut off by a crash is left out."""
        try:
            lines = (self.path / LOG).read_text().splitlines() if (self.path / LOG).is_file() else []
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"cannot read `{self.path / LOG}`: {error}") from error
        reports = []
        for line in lines:
            try:
                report = json.loads(line)
            except json.JSONDecodeError:
                break
            if not isinstance(report, dict) or not report.keys() >= _REPORTED:
                raise CheckpointError(f"`{self.path / LOG}` has a line that is no epoch: {line[:40]}")
            reports.append(report)
        return reports

    def rewind(self, epoch: int) -> None:
        """Drops the log lines after an epoch, which a resumed run will write again."""
        kept = [json.dumps(line) + "\n" for line in self.history() if line["epoch"] <= epoch]
        self._replace(LOG, "".join(kept).encode())

    def save_weights(self, weights: dict[str, Tensor]) -> None:
        """Writes the best weights."""
        # `save_file` would let no one but the owner read them
        self._replace(WEIGHTS, save({name: value.contiguous().cpu() for name, value in weights.items()}))

    def load_weights(self) -> dict[str, Tensor]:
        """Reads the best weights; they are written when training ends."""
        if not (self.path / WEIGHTS).exists() and not (self.path / RESULT).exists():
            raise CheckpointError(
                f"run `{self.path}` has no weights yet, since its training has not ended; "
                f"go on with `lazygnn train --resume {self.path}`"
            )
        try:
            return load_file(self.path / WEIGHTS)
        except (OSError, SafetensorError, ValueError) as error:
            raise CheckpointError(
                f"cannot read `{self.path / WEIGHTS}`: {error}; go on with `lazygnn train --resume {self.path}`"
            ) from error

    def save_result(self, result: dict[str, Any]) -> None:
        """Writes the final scores."""
        self._write_json(RESULT, result)

    def result(self) -> dict[str, Any]:
        """The final scores; empty before training has ended."""
        return self._read_json(RESULT) if (self.path / RESULT).is_file() else {}

    def has_ended(self) -> bool:
        """Whether result and weights are there and can be read, so that nothing is left to do."""
        try:
            self.load_weights()
            return bool(self.result())
        except CheckpointError:
            return False

    def _replace(self, name: str, content: bytes) -> None:
        temporary = self.path / f"{name}.tmp"
        temporary.write_bytes(content)
        temporary.replace(self.path / name)

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        self._replace(name, (json.dumps(content, indent=2) + "\n").encode())

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read `{self.path / name}`: {error}") from error
        if not isinstance(content, dict):
            raise CheckpointError(f"`{self.path / name}` does not hold a JSON object; it was not written by lazygnn")
        return content


def peak_memory_mib(device: torch.device) -> float:
    """Most memory held so far: on the accelerator by torch, on a CPU by the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, Linux kibibytes
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
