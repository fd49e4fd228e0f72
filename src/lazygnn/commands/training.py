"""Trains a configuration into a run folder, and resumes a run that was interrupted."""

import logging
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lazygnn.commands.advice import advise, advise_longer
from lazygnn.commands.conclusion import conclude, keeping_best_weights, record_chosen
from lazygnn.commands.paths import as_optional_path, as_path
from lazygnn.commands.restoring import reload_graph, with_absolute_paths
from lazygnn.commands.run_folders import (
    extended,
    left_unchanged,
    new_folder,
    remove_leftovers,
    without_checkpoint,
)
from lazygnn.config import Config, TrainerOptions
from lazygnn.data import load_graph
from lazygnn.distributed import is_launched
from lazygnn.errors import CheckpointError, ConfigError, reason
from lazygnn.feature_scale import FeatureScale
from lazygnn.files import discard
from lazygnn.graph import Graph
from lazygnn.methods import build, read_config
from lazygnn.methods.options import ClusterOptions
from lazygnn.model import Model
from lazygnn.models import Standardized
from lazygnn.ops import choose_device
from lazygnn.partitioning import default_cache
from lazygnn.run.checkpoint import Checkpoint, CheckpointFolder
from lazygnn.run.claim import check_unused
from lazygnn.run.environment import describe_environment
from lazygnn.run.folder import CHECKPOINTS, CONFIG, HISTORIES, TENSORBOARD, Run
from lazygnn.run.inputs import check_inputs, check_parts, check_same_classes
from lazygnn.run.lock import locked
from lazygnn.run.progress import EpochProgress
from lazygnn.run.saving import Interrupted, Saver
from lazygnn.run.tensorboard import TensorBoardLog, require_tensorboard
from lazygnn.task import Task
from lazygnn.training import EpochReport, FitResult, Trainer, infer
from lazygnn.training.constancy import describe_constant
from lazygnn.training.metrics import find_metric

logger = logging.getLogger(__name__)


def train(
    config: Config,
    out: Path | str | None = None,
    *,
    graph: Graph | None = None,
    init_from: Path | str | None = None,
    quiet: bool = False,
    curves: bool = True,
    verify: bool = True,
    advises: bool = True,
) -> dict[str, Any]:
    """Trains a configuration and writes its run folder.

    Args:
        config: From `resolve`.
        out: The run folder; default: `runs/<dataset>-<method>-<seed>`, with a number if that exists.
        graph: The graph, if it is loaded already. If no file has it under the name in `config`, whatever uses the run
            later needs it again, as `trained_on`.
        init_from: A run folder; training starts from its best weights instead of drawn ones.
        quiet: Shows no progress.
        curves: Whether to draw the training curves, which takes most of the time of a very short run.
        verify: Whether files of `init_from` that have changed since they were written are refused.
        advises: Whether to warn of what the splits of the graph and the rule mean for this training.

    Returns:
        The result: scores, epochs, time and memory.
    """
    out, init_from = as_optional_path(out, "out"), as_optional_path(init_from, "init_from")
    _check_for_one(config)
    device = choose_device(config.device)
    graph = load_graph(config.dataset, config.root) if graph is None else graph
    config = with_absolute_paths(config)
    weights, scale = None, None
    if init_from is not None:
        earlier = Run.open(init_from, verify=verify)
        check_same_classes(earlier, graph)
        weights, scale = earlier.load_weights(), earlier.feature_scale()
        config = _scaling_alike(config, earlier, scale)
    path = new_folder(config, str(config.seed)) if out is None else out
    check_unused(path)
    # with trained weights, few epochs are enough
    if advises and init_from is None:
        advise_user(config, graph, quiet=quiet)
    with locked(path):
        # another process may have come first, so this checks again
        run = Run.create(path, config, weights, scale)
        try:
            check_inputs(run, graph, device)
            trainer = _make_trainer(run, config, graph, device)
        except BaseException:
            # nothing has been trained yet, and the folder would be refused by a second attempt
            discard(run.path)
            raise
        with _telling_how_to_go_on(run):
            return _fit(run, config, trainer, quiet=quiet, curves=curves)


def advise_user(config: Config, graph: Graph, *, quiet: bool) -> None:
    """Tells what the splits of a graph and the rule mean for its training; see `advise`."""
    options = config.trainer
    advise(config, graph, EpochProgress(config.method, options.epochs, metric=options.metric, quiet=quiet).note)


def resume(
    path: Path | str,
    *,
    epochs: int | None = None,
    device: str | None = None,
    root: str | None = None,
    trained_on: Graph | None = None,
    quiet: bool = False,
    verify: bool = True,
) -> dict[str, Any]:
    """Resumes a run from its last valid checkpoint, or from its start if it has none.

    A run that has ended is left unchanged, and its result is returned. With more epochs it goes on, and ends as a run
    that was given them, and its other options, from the start.

    Args:
        path: The run folder.
        epochs: More epochs than the run was given, for a constant learning rate.
        device: Another device than the run was started on.
        root: Another folder of data files.
        trained_on: The graph that the run was trained on, if it is loaded already; by default it is found by its name.
        quiet: Shows no progress.
        verify: Whether files of the run, or a graph, that have changed since they were written are refused.

    Returns:
        The result; empty on all but the first of several ranks.
    """
    path = as_path(path, "path")
    run = Run.open(path, verify=verify)
    if is_launched() or run.config(read_config).trainer.parts_per_step is not None:
        from lazygnn.commands.scaling import resume_ranks

        if trained_on is not None:
            raise ConfigError(f"run `{path}` is of several ranks, which read their graph from files; omit `trained_on`")
        return resume_ranks(path, epochs=epochs, device=device, root=root, quiet=quiet, verify=verify) or {}
    if epochs is None and run.has_ended():
        remove_leftovers(run)
        return left_unchanged(run)
    with locked(path):
        return _resume(run, epochs, device, root, trained_on, quiet=quiet)


def _resume(
    run: Run, epochs: int | None, device: str | None, root: str | None, trained_on: Graph | None, *, quiet: bool
) -> dict[str, Any]:
    started, path = run.config(read_config), run.path
    config = started if epochs in (None, started.trainer.epochs) else extended(started, epochs, path)
    is_longer = config is not started
    if run.has_ended() and not is_longer:
        return left_unchanged(run)
    checkpoint = CheckpointFolder(path / CHECKPOINTS).load_latest()
    if checkpoint is None and is_longer:
        raise without_checkpoint(path)
    graph = reload_graph(config, root, trained_on)
    chosen = choose_device(device if device is not None else config.device)
    check_inputs(run, graph, chosen)
    if is_longer:
        advise_longer(started, config, graph)
    trainer = _make_trainer(run, config, graph, chosen, checkpoint)
    if checkpoint is None:
        logger.warning("run `%s` has no checkpoint yet and starts over; see the option `checkpoint_minutes`", path)
    with _telling_how_to_go_on(run):
        # all that can be refused has been, so that a run that cannot go on stays as it is
        if is_longer:
            run.change_config(config)
        run.remove_weights()
        run.rewind(trainer.epoch)
        return _fit(run, config, trainer, quiet=quiet)


def _check_for_one(config: Config) -> None:
    """Refuses options of several ranks, which have no effect in one process."""
    for name in ("parts_per_step", "wire", "exchange_every"):
        value = getattr(config.trainer, name)
        if value != TrainerOptions.model_fields[name].default:
            raise ConfigError(
                f"`{name}` is {value}, which is for several ranks; start them with `torchrun -m lazygnn train ...`, or "
                f"omit `{name}`"
            )


@contextmanager
def _telling_how_to_go_on(run: Run) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        there = (run.path / CONFIG).is_file()
        remedy = f"mend that, then `lazygnn train --resume {run.path}`" if there else "the folder is gone; train again"
        raise CheckpointError(f"cannot write `{error.filename or run.path}`: {reason(error)}; {remedy}") from error


def _make_trainer(
    run: Run, config: Config, graph: Graph, device: torch.device, checkpoint: Checkpoint | None = None
) -> Trainer:
    if config.trainer.logger == "tensorboard":
        require_tensorboard()
    torch.manual_seed(config.seed)
    scale = run.feature_scale()
    if scale is None and run.chosen():
        # the run was started with features as they are
        config = _with_scaling(config, "off")
    built = build(
        _as_started(run, config),
        graph,
        device,
        folder=run.path / HISTORIES,
        cache=default_cache(),
        feature_scale=scale,
    )
    # without parts, the nodes stay in their order
    found_by = {"partition": "contiguous"} if isinstance(config.model, ClusterOptions) else {}
    if built.parts is not None:
        check_parts(run, built.parts.order, built.parts.ptr, built.parts.engine)
        found_by = {"partition": built.parts.method}
    if (weights := run.load_initial()) is not None:
        _load_initial(built.model, weights)
    trainer = Trainer(built.model, built.loader, built.graph, config.trainer, seed=config.seed)
    if checkpoint is not None:
        trainer.restore(checkpoint.tensors, checkpoint.state)
    if built.feature_scale is not None:
        run.save_feature_scale(built.feature_scale)
    metric, _ = find_metric(config.trainer.metric, built.graph.task)
    record_chosen(run, config, built.model, metric, device, replays=device.type == "cuda", parts=found_by)
    run.save_environment(describe_environment() | ({"partition": built.parts.engine} if built.parts else {}))
    return trainer


def _scaling_alike(config: Config, earlier: Run, scale: FeatureScale | None) -> Config:
    """Returns a configuration that takes features as the weights of an earlier run do; refuses another choice."""
    choice, needed = config.trainer.standardize_features, "off" if scale is None else "on"
    if choice not in ("auto", needed):
        raise ConfigError(
            f"`standardize_features` is {choice}, but the weights in `{earlier.path}` were trained with {needed}; "
            "omit it"
        )
    return _with_scaling(config, needed)


def _with_scaling(config: Config, choice: str) -> Config:
    trainer = type(config.trainer)(**{**config.trainer.model_dump(), "standardize_features": choice})
    return config.model_copy(update={"trainer": trainer})


def _as_started(run: Run, config: Config) -> Config:
    """Returns the configuration with the partition algorithm that was chosen when the run was started."""
    chosen = run.chosen().get("partition")
    if chosen is None or not isinstance(config.model, ClusterOptions) or config.model.partition != "auto":
        return config
    return config.model_copy(update={"model": config.model.model_copy(update={"partition": chosen})})


def _load_initial(model: Model, weights: dict[str, Tensor]) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"the weights of `--init-from` do not fit this model: {reason}; "
            "use a method and options with the same layers (the rule may set others for this graph: `lazygnn show` has "
            "those of the run), and a graph with the same features and classes"
        ) from error


def _fit(run: Run, config: Config, trainer: Trainer, *, quiet: bool, curves: bool = True) -> dict[str, Any]:
    saver = Saver(CheckpointFolder(run.path / CHECKPOINTS), config.trainer, run.log)
    trainer.on_batch = saver
    metric, _ = find_metric(config.trainer.metric, trainer.graph.task)
    showing = EpochProgress(config.method, config.trainer.epochs, metric=metric, quiet=quiet)
    # a signal after the last batch stops the process when the result is written
    with saver.handling_signals():
        with showing as progress:
            fit = _train(run, config, trainer, saver, progress)
        task = trainer.model.decide(trainer.graph.task)
        result = conclude(run, config, trainer.model, task, fit, metric, curves=curves)
        _warn_of_constant(trainer, task)
    if saver.signum is not None:
        raise Interrupted(saver.signum, run.path, ended=True)
    return result


def _train(run: Run, config: Config, trainer: Trainer, saver: Saver, progress: EpochProgress) -> FitResult:
    with ExitStack() as stack:
        told = [run.log.append, progress.show]
        if config.trainer.logger == "tensorboard":
            told.append(stack.enter_context(TensorBoardLog(run.path / TENSORBOARD, run.log.read())).append)

        def on_epoch(report: EpochReport) -> None:
            for tell in told:
                tell(report)

        trainer.on_epoch = on_epoch
        if isinstance(trainer.model, Standardized) and trainer.epoch == 0:
            progress.note(
                "targets are standardized in training; predictions and scores stay in their own units "
                "(`standardize_targets=false` turns this off)"
            )
        if (features := run.feature_scale()) is not None and trainer.epoch == 0:
            why = ", since their scales are very different" if config.trainer.standardize_features == "auto" else ""
            progress.note(
                f"features are standardized, {features.num_scaled} of {len(features.center)} columns{why} "
                "(`standardize_features=off` turns this off)"
            )
        with keeping_best_weights(run, trainer):
            trainer.run()
            saver.save(trainer)
            # the last checkpoint has the content of these files
            shutil.rmtree(run.path / HISTORIES, ignore_errors=True)
            return trainer.finish()


def _warn_of_constant(trainer: Trainer, task: Task) -> None:
    outputs = infer(trainer.model, trainer.graph)
    learns = bool(list(trainer.model.parameters()))
    if (constant := describe_constant(outputs, replace(trainer.graph, task=task), learns=learns)) is not None:
        logger.warning(constant)
