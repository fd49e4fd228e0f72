"""Run folders before and after a training: a new one, one that goes on, and one that is left as it is."""

import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.files import discard
from lazygnn.methods import read_config
from lazygnn.run.claim import claim_folder
from lazygnn.run.folder import CHECKPOINTS, CONFIG, Run
from lazygnn.run.lock import locked

logger = logging.getLogger(__name__)


def new_folder(config: Config, ending: str) -> Path:
    """Creates `runs/<dataset>-<method>-<ending>`, with a number if that exists."""
    return claim_folder(_default_folder(config, ending))


def earlier_folders(config: Config, ending: str) -> list[Path]:
    """Returns the folders of runs that `new_folder` has created under this name, newest first."""
    base = _default_folder(config, ending)
    named = re.compile(rf"{re.escape(base.name)}(-[0-9]+)?")
    found = [path for path in base.parent.glob(f"*/{CONFIG}") if named.fullmatch(path.parent.name)]
    return [path.parent for path in sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)]


def extended(config: Config, epochs: int, path: Path) -> Config:
    """Returns a configuration with more epochs; refuses one with which a run could not have started the same way.

    Args:
        config: The configuration of the run.
        epochs: The new number of epochs.
        path: The run folder.
    """
    options = config.trainer
    instead = f"start from its best weights with `lazygnn train --init-from {path}`"
    if epochs < options.epochs:
        raise ConfigError(f"`epochs` is {epochs}, but run `{path}` has {options.epochs} already; give more")
    if options.schedule != "constant":
        raise ConfigError(
            f"the learning rate of run `{path}` ends with its {options.epochs} epochs (`schedule` is "
            f"{options.schedule}), so it cannot go on; {instead}"
        )
    if options.epochs % options.eval_every:
        raise ConfigError(
            f"run `{path}` was evaluated at its end, after {options.epochs} epochs, where a longer run with "
            f"`eval_every={options.eval_every}` is not, so it cannot go on; {instead}"
        )
    trainer = type(options)(**{**options.model_dump(), "epochs": epochs})
    return config.model_copy(update={"trainer": trainer})


def without_checkpoint(path: Path) -> CheckpointError:
    """Returns the error of a run that is to be trained longer and has no checkpoint."""
    return CheckpointError(
        f"run `{path}` has no checkpoint to go on from; start from its weights with `--init-from {path}`"
    )


def left_unchanged(run: Run) -> dict[str, Any]:
    """Returns the result of a run that has ended."""
    logger.warning("run `%s` has ended and is left unchanged; to train again, choose another `--out`", run.path)
    return run.result() | {"run": str(run.path)}


def remove_leftovers(run: Run) -> None:
    """Removes what a crash at the very end of a training has left; its result was written before."""
    # a folder that cannot be written, or that another process holds, is left as it is
    with suppress(ConfigError), locked(run.path):
        if not run.config(read_config).trainer.keep_checkpoint:
            discard(run.path / CHECKPOINTS)


def _default_folder(config: Config, ending: str) -> Path:
    return Path("runs") / f"{Path(config.dataset).stem}-{config.method}-{ending}"
