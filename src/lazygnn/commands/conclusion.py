"""Writes what a training leaves behind: what it has chosen, the weights, the curves and the result.

One process and ranks end in the same way.
"""

import logging
import shutil
import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch

from lazygnn.commands.result import make_result
from lazygnn.config import Config
from lazygnn.errors import DivergenceError
from lazygnn.model import Model
from lazygnn.models import Standardized
from lazygnn.run.curves import plot_curves
from lazygnn.run.folder import CHECKPOINTS, CURVES, Run
from lazygnn.run.saving import Interrupted
from lazygnn.run.trend import still_rising
from lazygnn.task import Task
from lazygnn.training import FitResult, Trainer

logger = logging.getLogger(__name__)


def record_chosen(
    run: Run,
    config: Config,
    model: Model,
    metric: str,
    device: torch.device,
    *,
    replays: bool,
    parts: Mapping[str, Any] | None = None,
) -> None:
    """Writes the values that were chosen for options left open, such as `auto`, before the first step.

    Args:
        run: Where to write; it has the scale of its features already.
        config: The configuration of the run.
        model: As it is trained.
        metric: The name of the metric.
        device: The compute device.
        replays: Whether steps may be replayed on a GPU, which is decided batch by batch.
        parts: How the parts were found.
    """
    chosen: dict[str, Any] = {"device": str(device), "metric": metric}
    chosen |= {} if replays else {"cuda_graphs": "off"}
    chosen |= {"standardize_features": "off" if run.feature_scale() is None else "on"}
    if isinstance(model, Standardized):
        chosen |= {"target_center": model.target_center.tolist(), "target_scale": model.target_scale.tolist()}
    run.save_chosen(chosen | config.model.chosen() | dict(parts or {}))


@contextmanager
def keeping_best_weights(run: Run, trainer: Trainer, *, writes: bool = True) -> Iterator[None]:
    """Writes the best weights so far if training fails, and says how to use them.

    Args:
        run: Where to write.
        trainer: Trains in the block.
        writes: Whether this process writes; of several ranks one does, and all of them raise the same error.
    """
    try:
        yield
    except Interrupted:
        # the checkpoint has them
        raise
    except Exception as error:
        if not trainer.best.weights:
            raise
        # a disk that cannot be written, or a device that has failed, may be the reason
        with suppress(OSError, RuntimeError):
            if writes:
                run.save_weights(trainer.best.weights)
            kept = f"the best weights, of epoch {trainer.best.epoch}, are kept: `lazygnn evaluate {run.path}`"
            if isinstance(error, DivergenceError):
                raise DivergenceError(f"{error}; {kept}") from error
            if writes:
                logger.warning(kept)
        raise


def conclude(
    run: Run,
    config: Config,
    model: Model,
    task: Task,
    fit: FitResult,
    metric: str,
    *,
    curves: bool = True,
    further: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Writes the weights, the curves and the result, which it returns; warns of validation that was still rising.

    Args:
        run: Where to write.
        config: The configuration of the run.
        model: With its best weights.
        task: What is predicted, with the threshold of the model.
        fit: What the training returned.
        metric: The name of the metric.
        curves: Whether to draw the curves.
        further: Fields of the result that replace or follow the usual ones.
    """
    # one written during the training is of earlier weights
    run.remove_report()
    run.save_weights(model.state_dict())
    log = run.log.read()
    if curves:
        _draw(run, config, log)
    _warn_if_still_rising(log, config.trainer.epochs, metric)
    trained = {
        "epochs": fit.epochs,
        "best_epoch": fit.best_epoch,
        # not the mean: the first epochs compile and capture
        "seconds_per_epoch": statistics.median([line["seconds"] for line in log] or [0.0]),
        "seconds": fit.seconds + fit.eval_seconds,
        "eval_seconds": fit.eval_seconds,
        "shares": model.shares,
    }
    result = make_result(config, metric, fit.scores, trained=trained, task=task, device=model.device, path=run.path)
    result |= further or {}
    run.save_result(result)
    if not config.trainer.keep_checkpoint:
        shutil.rmtree(run.path / CHECKPOINTS, ignore_errors=True)
    return result


def _draw(run: Run, config: Config, log: list[dict[str, Any]]) -> None:
    try:
        plot_curves({config.method: log}, run.path / CURVES)
    except Exception as error:
        # the result is worth more than its picture
        logger.warning("cannot draw `%s`: %s", run.path / CURVES, error)


def _warn_if_still_rising(log: list[dict[str, Any]], epochs: int, metric: str) -> None:
    if (rise := still_rising(log, epochs, metric)) is not None:
        logger.warning(
            f"validation was still {'rising' if rise[0] < rise[1] else 'falling'} when training ended: "
            f"{rise[0]:.4f} after nine tenths of the epochs, {rise[1]:.4f} at the end; "
            f"train longer, with `--set epochs={2 * epochs}` or more"
        )
