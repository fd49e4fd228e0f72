"""Trains a configuration with several seeds, and resumes the seeds that have not ended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lazygnn.commands.paths import as_optional_path, as_path
from lazygnn.commands.restoring import reload_graph, with_absolute_paths
from lazygnn.commands.run_folders import new_folder
from lazygnn.commands.training import advise_user, resume, train
from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.errors import CheckpointError, ConfigError, check_number
from lazygnn.files import discard
from lazygnn.graph import Graph
from lazygnn.methods import read_config
from lazygnn.methods.build import warn_of_unsuited
from lazygnn.ops import choose_device
from lazygnn.run.folder import SEEDS
from lazygnn.run.lock import locked
from lazygnn.run.saving import Interrupted
from lazygnn.run.seeds import SeedRuns, summarize

Tell = Callable[[dict[str, Any]], None]


def train_seeds(
    config: Config,
    num_seeds: int,
    out: Path | str | None = None,
    *,
    graph: Graph | None = None,
    quiet: bool = False,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Trains a configuration with several seeds, each in a run folder of its own.

    Args:
        config: From `resolve`; its seed is the first.
        num_seeds: The number of seeds.
        out: The folder of the run folders; default: `runs/<dataset>-<method>-seeds`, with a number if that exists.
        graph: The graph, if it is loaded already; see `train`.
        quiet: Shows no progress.
        tell: Called with the result of every seed.

    Returns:
        The means, and the deviations of the scores.
    """
    out = as_optional_path(out, "out")
    check_number("num_seeds", num_seeds, whole=True)
    if num_seeds < 1:
        raise ConfigError(f"`seeds` is {num_seeds}; give the number of seeds, at least 1")
    choose_device(config.device)
    graph = load_graph(config.dataset, config.root) if graph is None else graph
    config = with_absolute_paths(config)
    path = new_folder(config, "seeds") if out is None else out
    SeedRuns.check_new(path)
    # the configuration of a seed is read from a file, which does not have what was asked for
    warn_of_unsuited(config, graph)
    advise_user(config, graph, quiet=quiet)
    with locked(path):
        seeds = SeedRuns.create(path, config, num_seeds)
        try:
            return _train_rest(seeds, graph, device=None, root=None, quiet=quiet, tell=tell)
        except BaseException:
            # nothing has been trained yet, and the folder would be refused by a second attempt
            if seeds.started(config.seed) is None:
                discard(seeds.path)
            raise


def resume_seeds(
    path: Path | str,
    *,
    device: str | None = None,
    root: str | None = None,
    trained_on: Graph | None = None,
    quiet: bool = False,
    verify: bool = True,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Trains the seeds that have not ended; those that have ended are left unchanged.

    Args:
        path: The folder of the run folders.
        device: Another device than the runs were started on.
        root: Another folder of data files.
        trained_on: The graph that the runs were trained on, if it is loaded already; by default it is found by name.
        quiet: Shows no progress.
        verify: Whether files of the runs, or a graph, that have changed since they were written are refused.
        tell: Called with the result of every seed.
    """
    path = as_path(path, "path")
    if not SeedRuns.is_at(path):
        raise CheckpointError(f"`{path}` has no `{SEEDS}`; give a folder that `train --seeds` wrote")
    seeds = SeedRuns(path, verify=verify)
    with locked(path):
        return _train_rest(seeds, trained_on, device=device, root=root, quiet=quiet, tell=tell)


def _train_rest(
    seeds: SeedRuns,
    trained_on: Graph | None,
    *,
    device: str | None,
    root: str | None,
    quiet: bool,
    tell: Tell,
) -> dict[str, Any]:
    results = []
    for seed in seeds.seeds():
        run = seeds.started(seed)
        try:
            if run is None:
                config = seeds.config(seed, read_config)
                config = config if device is None else config.model_copy(update={"device": device})
                graph = reload_graph(config, root, trained_on)
                # what the graph means for all seeds was told before the first
                result = train(config, seeds.run_path(seed), graph=graph, quiet=quiet, advises=False)
            elif run.has_ended():
                result = run.result()
            else:
                place: dict[str, Any] = {"device": device, "root": root, "trained_on": trained_on}
                result = resume(run.path, **place, quiet=quiet, verify=seeds.verify)
        except Interrupted as stop:
            raise Interrupted(stop.signum, seeds.path) from None
        results.append(result)
        tell(result)
    summary = summarize(results, seeds.path)
    seeds.save_result(summary)
    return summary
