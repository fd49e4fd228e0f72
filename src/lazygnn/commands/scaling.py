"""Trains a run with several ranks, which `torchrun` starts, and resumes it with any number of them.

The first rank creates the run folder, shows progress and returns the result; the others return `None`.
"""

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from lazygnn.commands.advice import advise
from lazygnn.commands.conclusion import conclude, keeping_best_weights, record_chosen
from lazygnn.commands.restoring import with_absolute_paths
from lazygnn.commands.result import peak_memory_mib
from lazygnn.commands.run_folders import (
    earlier_folders,
    extended,
    left_unchanged,
    new_folder,
    remove_leftovers,
    without_checkpoint,
)
from lazygnn.commands.sharing import check_values, parts_folder, resolve_for_ranks
from lazygnn.config import Config, TrainerOptions
from lazygnn.data import load_graph
from lazygnn.distributed import is_restarted
from lazygnn.distributed.agreement import check_agreement
from lazygnn.distributed.building import build_trainer, choose_folder_scale, share_of
from lazygnn.distributed.checkpoint import RankCheckpoints
from lazygnn.distributed.group import Ranks, join
from lazygnn.distributed.saving import RankSaver
from lazygnn.distributed.traffic import summarize
from lazygnn.distributed.trainer import RankTrainer
from lazygnn.errors import ConfigError, RankError
from lazygnn.feature_scale import FeatureScale
from lazygnn.files import discard
from lazygnn.methods import read_config
from lazygnn.methods.build import method_options
from lazygnn.ops import choose_device
from lazygnn.run.claim import check_unused
from lazygnn.run.environment import describe_environment
from lazygnn.run.folder import CHECKPOINTS, CONFIG, HISTORIES, Run
from lazygnn.run.inputs import check_shards, describe_graph
from lazygnn.run.lock import locked
from lazygnn.run.progress import EpochProgress
from lazygnn.run.saving import Interrupted
from lazygnn.training import EpochReport
from lazygnn.training.metrics import find_metric

logger = logging.getLogger(__name__)


def train_ranks(
    method: str,
    dataset: str,
    values: Mapping[str, Any],
    out: Path | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    root: str | None = None,
    quiet: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    verify: bool = True,
) -> dict[str, Any] | None:
    """Trains a method on a data set with the ranks that `torchrun` has started.

    A data set that `lazygnn prepare --out` has written is read in place, each rank its own rows. The first rank
    partitions any other one and writes it to the run folder. Ranks that were started again resume their run.

    Args:
        method: A method that ranks can train.
        dataset: A name or a path; all ranks must see it under this name.
        values: Options by name.
        out: The run folder, which all ranks must see.
        seed: Seed of weights, dropout and batches.
        device: `auto`, `cpu` or `cuda`.
        root: The folder of data files.
        quiet: Shows no progress.
        tell: Called on the first rank with a sentence about the options, if there is one.
        verify: Whether files of a run that goes on, or its graph, that have changed are refused.

    Returns:
        The result on the first rank, `None` on the others.
    """
    with joined(device, values.get("rank_timeout")) as ranks, ExitStack() as stack:
        with ranks.agreeing():
            # refuses wrong options before the graph is loaded
            given = check_values(method, dataset, values, seed=seed, device=device, root=root)

        def prepare() -> tuple[str, str, bool]:
            if is_restarted() and (left := _unfinished(given, out, verify=verify)) is not None:
                stack.enter_context(locked(left))
                return str(left), Run.open(left, verify=verify).config(read_config).record(), True
            graph = load_graph(dataset, root)
            place = {"seed": seed, "device": device, "root": root}
            config = with_absolute_paths(resolve_for_ranks(method, dataset, values, graph, ranks.size, **place))
            path = new_folder(config, str(config.seed)) if out is None else out
            check_unused(path)
            advise(config, graph, tell)
            found = describe_graph(graph)
            stack.enter_context(locked(path))
            run = Run.create(path, config)
            try:
                run.save_inputs(found)
            except BaseException:
                # nothing has been trained yet, and the folder would be refused by a second attempt
                discard(run.path)
                raise
            return str(run.path), config.record(), False

        path, record, again = ranks.first_alone("start", prepare)
        config = read_config(json.loads(record))
        try:
            return _train(Run(Path(path), verify=verify), config, ranks, resuming=again, quiet=quiet)
        except _NotStarted as stop:
            if ranks.is_first and not again:
                # nothing has been trained yet, and the folder would be refused by a second attempt
                shutil.rmtree(path, ignore_errors=True)
            raise stop.error from None


def resume_ranks(
    path: Path,
    *,
    epochs: int | None = None,
    device: str | None = None,
    root: str | None = None,
    quiet: bool = False,
    verify: bool = True,
) -> dict[str, Any] | None:
    """Resumes a run from its last checkpoint, with the same or another number of ranks.

    Args:
        path: The run folder.
        epochs: More epochs than the run was given, for a constant learning rate.
        device: Another device than the run was started on.
        root: Another folder of data files.
        quiet: Shows no progress.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.

    Returns:
        The result on the first rank, `None` on the others.
    """
    run = Run.open(path, verify=verify)
    given = run.config(read_config)
    if device is not None:
        given = given.model_copy(update={"device": device})
    with joined(given.device, given.trainer.rank_timeout) as ranks, ExitStack() as stack:

        def prepare() -> tuple[str, bool]:
            if given.trainer.parts_per_step is None:
                raise ConfigError(
                    f"run `{path}` was started by one process; resume it without `torchrun`, or start a new run"
                )
            if run.has_ended() and epochs in (None, given.trainer.epochs):
                remove_leftovers(run)
                return given.record(), True
            stack.enter_context(locked(path))
            config = given if epochs in (None, given.trainer.epochs) else extended(given, epochs, path)
            return config.record(), False

        record, ended = ranks.first_alone("resume", prepare)
        if ended:
            return left_unchanged(run) if ranks.is_first else None
        config = read_config(json.loads(record))
        is_longer = config.trainer.epochs != given.trainer.epochs
        try:
            return _train(run, config, ranks, resuming=True, is_longer=is_longer, root=root, quiet=quiet)
        except _NotStarted as stop:
            raise stop.error from None


class _NotStarted(Exception):
    """An error before the first step."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def joined(device: str, timeout: object) -> Iterator[Ranks]:
    """Joins the other ranks; what goes wrong is told once. A time-out that is not a number is refused later."""
    usable = isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0
    ranks = join(device, float(cast(float, timeout)) if usable else TrainerOptions().rank_timeout)
    if not ranks.is_first:
        # warnings are the same on all ranks
        logging.getLogger("lazygnn").setLevel(logging.ERROR)
    try:
        with ranks.reporting():
            yield ranks
    except Interrupted as stop:
        if ranks.is_first:
            raise
        raise RankError(str(stop), shown=False) from stop
    finally:
        ranks.close()


def _unfinished(config: Config, out: Path | None, *, verify: bool) -> Path | None:
    """Returns the run folder that ranks have started before they were started again.

    Without `out`, it is the newest run of this data set, method and seed that has not ended.
    """
    if out is not None:
        return out if (out / CONFIG).is_file() else None
    data = _data(with_absolute_paths(config))
    for path in earlier_folders(config, str(config.seed)):
        run = Run.open(path, verify=verify)
        if not run.has_ended() and _data(run.config(read_config)) == data:
            return path
    return None


def _data(config: Config) -> tuple[str, str | None]:
    return config.dataset, config.root


def _train(
    run: Run,
    config: Config,
    ranks: Ranks,
    *,
    resuming: bool,
    is_longer: bool = False,
    root: str | None = None,
    quiet: bool,
) -> dict[str, Any] | None:
    device = choose_device(config.device)
    checkpoints = RankCheckpoints(run.path / CHECKPOINTS, ranks)
    try:
        trainer = _make_trainer(run, config, ranks, device, root)
        if resuming and not checkpoints.restore(trainer):
            if is_longer:
                raise without_checkpoint(run.path)
            if ranks.is_first:
                logger.warning("run `%s` has no checkpoint yet and starts over; see `checkpoint_minutes`", run.path)
        if ranks.is_first:
            _record(run, config, trainer, device)
    except Exception as error:
        raise _NotStarted(error) from error
    if ranks.is_first:
        # all that can be refused has been, so that a run that cannot go on stays as it is
        if is_longer:
            run.change_config(config)
        if resuming:
            run.remove_weights()
            run.rewind(trainer.epoch)
    return _fit(run, config, trainer, checkpoints, quiet=quiet)


def _make_trainer(run: Run, config: Config, ranks: Ranks, device: torch.device, root: str | None) -> RankTrainer:
    folder = Path(ranks.first_alone("parts", lambda: str(parts_folder(run, config, root))))
    digest = check_agreement(ranks, config, folder)
    with ranks.agreeing():
        if ranks.is_first:
            check_shards(run, digest)
        shard = share_of(config, folder, ranks)

    def choose() -> dict[str, list[float]] | None:
        scale, normalized = run.feature_scale(), method_options(config).normalize_features
        if scale is None:
            scale = choose_folder_scale(folder, config.trainer.standardize_features, normalized=normalized)
        if scale is not None:
            run.save_feature_scale(scale)
        return None if scale is None else scale.record()

    record = ranks.first_alone("scale", choose)
    scale = None if record is None else FeatureScale.read(record, str(run.path))
    return build_trainer(config, shard, ranks, device, run.path / HISTORIES / f"rank-{ranks.rank}", scale)


def _record(run: Run, config: Config, trainer: RankTrainer, device: torch.device) -> None:
    metric, _ = find_metric(config.trainer.metric, trainer.graph.task)
    record_chosen(run, config, trainer.model, metric, device, replays=False)
    run.save_environment(describe_environment())


def _fit(
    run: Run, config: Config, trainer: RankTrainer, checkpoints: RankCheckpoints, *, quiet: bool
) -> dict[str, Any] | None:
    ranks = trainer.ranks
    saver = RankSaver(checkpoints, config.trainer, run.path, run.log)
    trainer.on_batch, trainer.requests = saver, saver.requests
    metric, _ = find_metric(config.trainer.metric, trainer.graph.task)
    title = f"{config.method} on {ranks.size} ranks"
    progress = EpochProgress(title, config.trainer.epochs, metric=metric, quiet=quiet or not ranks.is_first)

    def on_epoch(report: EpochReport) -> None:
        if ranks.is_first:
            run.log.append(report)
            progress.show(report)

    trainer.on_epoch = on_epoch
    with keeping_best_weights(run, trainer, writes=ranks.is_first):
        with progress, saver.handling_signals():
            trainer.run()
            saver.save(trainer)
            # a signal that came in the last evaluation
            saver.check()
        fit = trainer.finish()
    device = trainer.model.device
    seen = ranks.gather((trainer.exchange.traffic, peak_memory_mib(device)))
    # all ranks have written their last files
    if not ranks.is_first:
        return None
    shutil.rmtree(run.path / HISTORIES, ignore_errors=True)
    further = {"peak_memory_mib": max(memory for _, memory in seen)} | summarize([traffic for traffic, _ in seen])
    task = trainer.model.decide(trainer.graph.task)
    return conclude(run, config, trainer.model, task, fit, metric, further=further)
