"""The run folder: the resolved configuration, the best weights and the result; where log and checkpoints are."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError, reason
from lazygnn.feature_scale import FeatureScale
from lazygnn.files import write_file
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.claim import FEATURES, INITIAL, check_unused, make_folder
from lazygnn.run.digests import DIGESTS, Digests
from lazygnn.run.log import RunLog
from lazygnn.run.weights import pack_weights, unpack_weights
from lazygnn.untrusted.text import parse_json

logger = logging.getLogger(__name__)

CONFIG, LOG, WEIGHTS, RESULT, CURVES = "config.json", "log.jsonl", "best.safetensors", "result.json", "curves.png"
CHECKPOINTS, HISTORIES, CHOSEN, REPORT = "checkpoints", "histories", "chosen.json", "report.json"
# the graph and the threads that training was started with
INPUTS = "inputs.json"
# in a folder of several runs
SEEDS = "seeds.json"
ENVIRONMENT, TENSORBOARD = "environment.json", "tensorboard"


class Run:
    """The folder of one training run.

    Args:
        path: The folder.
        verify: Whether files are refused that have changed since they were written.
    """

    def __init__(self, path: Path, *, verify: bool = True) -> None:
        self.path, self.verify = path, verify
        self.log = RunLog(path / LOG)
        self._digests = Digests(path, verify=verify)

    @staticmethod
    def create(
        path: Path, config: Config, initial: dict[str, Tensor] | None = None, scale: FeatureScale | None = None
    ) -> "Run":
        """Creates a new run folder; refuses a folder that is not empty, so that nothing is lost.

        Args:
            path: The folder.
            config: The configuration; the folder is a run as soon as it is written.
            initial: Weights that training starts from, if they are not drawn.
            scale: The scale that features are standardized with, if it is not fitted.
        """
        check_unused(path)
        files = [] if initial is None else [(INITIAL, pack_weights(initial))]
        files += [] if scale is None else [(FEATURES, _json_file(scale.record()))]
        files.append((CONFIG, _config_file(config)))
        try:
            make_folder(path)
            Digests(path).expect(*files)
            for name, content in files:
                write_file(path / name, content)
        except OSError as error:
            raise ConfigError(
                f"cannot write the run folder `{path}`: {reason(error)}; choose another `--out`"
            ) from error
        return Run(path)

    @staticmethod
    def open(path: Path, *, verify: bool = True) -> "Run":
        """Opens the folder of an earlier run.

        Args:
            path: The folder.
            verify: Whether files are refused that have changed since they were written.
        """
        if (path / SEEDS).is_file():
            one = next(path.glob("seed-*"), path)
            raise CheckpointError(f"`{path}` holds the runs of several seeds; give one of them, such as `{one}`")
        if not (path / CONFIG).is_file():
            raise CheckpointError(
                f"`{path}` is not a run folder: it has no `{CONFIG}`; give a folder that `train` wrote"
            )
        return Run(path, verify=verify)

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

    def save_inputs(self, values: dict[str, Any]) -> None:
        """Writes what the run was started on."""
        self._write_json(INPUTS, values)

    def inputs(self) -> dict[str, Any]:
        """Reads what the run was started on; empty before its start, and for runs of earlier versions."""
        return self._read_json(INPUTS) if (self.path / INPUTS).is_file() else {}

    def save_feature_scale(self, scale: FeatureScale) -> None:
        """Writes the scale that features are standardized with."""
        self._write_json(FEATURES, scale.record())

    def feature_scale(self) -> FeatureScale | None:
        """Reads the scale that features are standardized with; `None` if they are used as they are."""
        path = self.path / FEATURES
        return FeatureScale.read(self._read_json(FEATURES), str(path)) if path.is_file() else None

    def change_config(self, config: Config) -> None:
        """Replaces the configuration of a run that is to be trained longer; its result is not valid any more."""
        # a crash in between leaves a run that has not ended
        (self.path / RESULT).unlink(missing_ok=True)
        self._write(CONFIG, _config_file(config))

    def save_environment(self, environment: dict[str, Any]) -> None:
        """Writes what the run is trained with."""
        self._write_json(ENVIRONMENT, environment)

    def environment(self) -> dict[str, Any]:
        """Reads what the run was trained with; a run of an earlier version does not have it."""
        return self._read_json(ENVIRONMENT) if (self.path / ENVIRONMENT).is_file() else {}

    def save_weights(self, weights: dict[str, Tensor]) -> None:
        """Writes the best weights.

        Raises:
            DivergenceError: A weight is not finite.
        """
        self._write(WEIGHTS, pack_weights(weights))

    def remove_weights(self) -> None:
        """Removes the best weights of a training that has failed and now goes on."""
        (self.path / WEIGHTS).unlink(missing_ok=True)

    def rewind(self, epoch: int) -> None:
        """Removes what is not true of a training that goes on after an epoch: later scores, and a report."""
        self.log.rewind(epoch)
        self.remove_report()

    def remove_report(self) -> None:
        """Removes the report, which is of other weights."""
        (self.path / REPORT).unlink(missing_ok=True)

    def load_initial(self) -> dict[str, Tensor] | None:
        """Reads the weights that training starts from; `None` if they are drawn."""
        path = self.path / INITIAL
        try:
            return self._read_weights(INITIAL) if path.is_file() else None
        except (OSError, SafetensorError, ValueError) as error:
            raise CheckpointError(f"cannot read `{path}`: {error}; restore it from a backup") from error

    def load_weights(self) -> dict[str, Tensor]:
        """Reads the best weights; before training has ended, those of the last checkpoint, with a warning."""
        if not (self.path / WEIGHTS).exists() and not (self.path / RESULT).exists():
            if (best := self._best_so_far()) is not None:
                return best
            raise CheckpointError(
                f"run `{self.path}` has no weights yet, since its training has not ended; "
                f"resume it with `lazygnn train --resume {self.path}`"
            )
        if not (self.path / RESULT).exists():
            logger.warning("the training of run `%s` has not ended; using the best weights that it has kept", self.path)
        try:
            return self._read_weights(WEIGHTS)
        except (OSError, SafetensorError, ValueError) as error:
            raise CheckpointError(
                f"cannot read `{self.path / WEIGHTS}`: {error}; restore it with `lazygnn train --resume {self.path}`"
            ) from error

    def _best_so_far(self) -> dict[str, Tensor] | None:
        checkpoint = CheckpointFolder(self.path / CHECKPOINTS).load_latest()
        best = {} if checkpoint is None else checkpoint.part("best.")
        if checkpoint is None or not best:
            return None
        logger.warning(
            "the training of run `%s` has not ended; using its best weights so far, of epoch %d",
            self.path,
            checkpoint.state["best_epoch"],
        )
        return best

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
            if not self.result():
                return False
            self.load_weights()
            return True
        except CheckpointError:
            return False

    def _write_json(self, name: str, content: dict[str, Any]) -> None:
        self._write(name, _json_file(content))

    def _write(self, name: str, content: bytes) -> None:
        # a folder that was removed is not made again without its configuration
        if not (self.path / CONFIG).is_file():
            raise CheckpointError(
                f"cannot write `{self.path / name}`: the run folder has lost its `{CONFIG}`; train again from scratch"
            )
        self._digests.expect((name, content))
        write_file(self.path / name, content)

    def _read_json(self, name: str) -> dict[str, Any]:
        remedy = f"restore it with `lazygnn train --resume {self.path}`" if name == RESULT else "restore it"
        return read_unchanged(self.path / name, self._digests, remedy)

    def _read_weights(self, name: str) -> dict[str, Tensor]:
        content = (self.path / name).read_bytes()
        weights = unpack_weights(content, verify=self.verify)
        if not self._digests.match(name, content):
            raise ValueError("it is not the file that lazygnn wrote")
        return weights


def _json_file(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, allow_nan=False) + "\n").encode()


def _config_file(config: Config) -> bytes:
    return (config.record() + "\n").encode()


def read_unchanged(path: Path, digests: Digests, remedy: str = "restore it") -> dict[str, Any]:
    """Reads a JSON object that lazygnn wrote; refuses one that has changed since then.

    Args:
        path: The file.
        digests: The record of its folder.
        remedy: What to do about a file that has changed.
    """
    content = read_json(path)
    if not digests.match(path.name, path.read_bytes()):
        raise CheckpointError(
            f"`{path}` has changed since lazygnn wrote it; {remedy}, or take it as it is with `--no-verify` or without "
            f"`{DIGESTS}`"
        )
    return content


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object that lazygnn wrote."""
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read `{path}`: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"`{path}` does not hold a JSON object; it was not written by lazygnn")
    return content
