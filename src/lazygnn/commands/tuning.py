"""Searches good options for a method on a graph, and writes them as a file for `train --config`."""

import json
import logging
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lazygnn.commands.paths import as_optional_path, as_path
from lazygnn.commands.restoring import with_absolute_paths
from lazygnn.commands.run_folders import new_folder
from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError, reason
from lazygnn.files import write_file
from lazygnn.graph import Graph
from lazygnn.ops import choose_device
from lazygnn.run.claim import check_unused, make_folder
from lazygnn.run.folder import RESULT, read_json
from lazygnn.run.inputs import fingerprint
from lazygnn.run.lock import locked
from lazygnn.run.saving import Interrupted
from lazygnn.task import ERRORS
from lazygnn.training.metrics import find_metric
from lazygnn.tuning.space import Space, find_space, left_out, nearest_values, read_space, write_space
from lazygnn.tuning.study import Asked, Study, Tried, check_pruner, load_optuna
from lazygnn.tuning.trial import Subject
from lazygnn.tuning.workers import run_here, run_in_workers

logger = logging.getLogger(__name__)

STUDY, BEST = "study.json", "best.toml"

Tell = Callable[[str], None]


def tune(
    method: str,
    dataset: str,
    values: Mapping[str, Any] = {},
    *,
    out: Path | str | None = None,
    space: str = "options",
    trials: int = 30,
    timeout: float | None = None,
    jobs: int = 1,
    pruner: str = "median",
    seed: int = 0,
    device: str = "auto",
    root: str | None = None,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Searches the options with the best validation score; test nodes are not looked at.

    The first trial has the values of the recipe or rule, as far as the space contains them; a warning names the others.

    Args:
        method: Name of the method.
        dataset: A name or a path.
        values: Options that stay as they are.
        out: The folder of the search; default: `runs/<dataset>-<method>-tune`, with a number if that exists.
        space: `options` for the ranges of the options, `paper`, or the path of a TOML file.
        trials: The number of trials.
        timeout: Seconds after which no new trial starts.
        jobs: The number of processes that train.
        pruner: Ends bad trials early: `median`, `hyperband` or `none`.
        seed: Seed of the values that are tried, and of every training.
        device: `auto`, `cpu` or `cuda`.
        root: The folder of data files.
        tell: Called with a line about every trial that has ended.

    Returns:
        The best options, their validation score, and the path of the file for `train --config`.
    """
    out = as_optional_path(out, "out")
    _check_limits(trials, timeout, jobs)
    check_pruner(pruner)
    load_optuna()
    subject = Subject(method, dataset, seed, str(choose_device(device)), root, dict(values))
    graph = subject.load()
    default = with_absolute_paths(subject.config({}, graph))
    find_metric(default.trainer.metric, graph.task)
    subject = Subject(method, default.dataset, seed, subject.device, default.root, dict(values))
    found = find_space(space, method, values, default)
    folder = out if out is not None else new_folder(default, "tune")
    _check_new(folder)
    content = {
        "subject": {**vars(subject), "fixed": dict(values)},
        "space": write_space(found),
        "pruner": pruner,
        "trials": trials,
        "graph": fingerprint(graph),
    }
    _warn_of_first(found, default)
    with locked(folder):
        _create(folder, content)
        return _search(folder, subject, graph, trials=trials, timeout=timeout, jobs=jobs, tell=tell)


def resume_tuning(
    path: Path | str,
    *,
    trials: int | None = None,
    timeout: float | None = None,
    jobs: int = 1,
    verify: bool = True,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """Continues a search; trials that were running when it was killed are run again with the same values.

    Args:
        path: The folder of the search.
        trials: Another number of trials, counted from the start of the search.
        timeout: Seconds after which no new trial starts.
        jobs: The number of processes that train.
        verify: Whether a graph that has changed since the start is refused.
        tell: Called with a line about every trial that has ended.
    """
    path = as_path(path, "path")
    content = _read(path)
    trials = content["trials"] if trials is None else trials
    _check_limits(trials, timeout, jobs)
    subject = Subject(**content["subject"])
    choose_device(subject.device)
    with locked(path):
        graph = subject.load()
        if verify:
            _check_graph(path, content, graph)
        return _search(path, subject, graph, trials=trials, timeout=timeout, jobs=jobs, tell=tell)


def _search(
    folder: Path, subject: Subject, graph: Graph, *, trials: int, timeout: float | None, jobs: int, tell: Tell
) -> dict[str, Any]:
    content, started = _read(folder), time.monotonic()
    space = read_space(content["space"], str(folder / STUDY))
    default = subject.config({}, graph)
    metric, _ = find_metric(default.trainer.metric, graph.task)
    study = Study(
        folder,
        space,
        seed=subject.seed,
        pruner=content["pruner"],
        epochs=default.trainer.epochs,
        lower=metric in ERRORS,
    )
    # where the space contains the default, the best is not worse
    study.begin_with(nearest_values(space, default))
    again = study.interrupted()
    left = trials - len(study.tried()) - len(again)

    def following() -> Asked | None:
        nonlocal left
        if timeout is not None and time.monotonic() - started > timeout:
            return None
        if again:
            return again.pop(0)
        left -= 1
        return study.ask() if left >= 0 else None

    running = (
        run_here(study, subject, graph, following) if jobs == 1 else run_in_workers(study, subject, jobs, following)
    )
    try:
        for number in running:
            ended = next(trial for trial in study.tried() if trial.number == number)
            tell(_describe(ended, study.best()))
    except KeyboardInterrupt:
        raise Interrupted(signal.SIGINT, folder, "tune") from None
    return _finish(folder, subject, study, metric)


def _finish(folder: Path, subject: Subject, study: Study, metric: str) -> dict[str, Any]:
    tried, best = study.tried(), study.best()
    counts = Counter(trial.outcome for trial in tried)
    if best is None:
        reason = next((trial.reason for trial in tried if trial.reason), "the time was too short")
        raise CheckpointError(
            f"no trial in `{folder}` is complete: {reason}; continue with `lazygnn tune --resume {folder}`"
        )
    options = {**best.values, **subject.fixed}
    write_file(folder / BEST, _toml(options, subject, metric, best).encode())
    result = {
        "method": subject.method,
        "dataset": subject.dataset,
        "seed": subject.seed,
        "metric": metric,
        "val": best.score,
        "trial": best.number,
        "complete": counts["complete"],
        "pruned": counts["pruned"],
        "failed": counts["failed"],
        "options": options,
        "config": str(folder / BEST),
    }
    write_file(folder / RESULT, (json.dumps(result, indent=2) + "\n").encode())
    return result


def _toml(options: Mapping[str, Any], subject: Subject, metric: str, best: Tried) -> str:
    # JSON of numbers, text, booleans and lists is TOML; an empty option is `none` there
    lines = [f"{name} = {json.dumps('none' if value is None else value)}" for name, value in options.items()]
    head = [
        f"# found by `lazygnn tune {subject.method} {subject.dataset}`, trial {best.number}: "
        f"validation {metric} {best.score:.4f} with seed {subject.seed}",
    ]
    return "\n".join([*head, *lines]) + "\n"


def _check_new(folder: Path) -> None:
    check_unused(folder, f"continue a search with `lazygnn tune --resume {folder}`, or choose another `--out`")


def _create(folder: Path, content: dict[str, Any]) -> None:
    # another process may have come first
    _check_new(folder)
    try:
        make_folder(folder)
        write_file(folder / STUDY, (json.dumps(content, indent=2) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"cannot write the folder `{folder}`: {reason(error)}; choose another `--out`") from error


def _read(folder: Path) -> dict[str, Any]:
    if not (folder / STUDY).is_file():
        raise CheckpointError(f"`{folder}` has no `{STUDY}`; give a folder that `lazygnn tune` wrote")
    content = read_json(folder / STUDY)
    if not content.keys() >= {"subject", "space", "pruner", "trials"}:
        raise CheckpointError(f"`{folder / STUDY}` was not written by lazygnn")
    return content


def _check_graph(folder: Path, content: Mapping[str, Any], graph: Graph) -> None:
    # a search of an earlier version has no record of its graph
    if "graph" in content and content["graph"] != fingerprint(graph):
        raise CheckpointError(
            f"graph `{graph.name}` has other content than when search `{folder}` was started; restore it, start a new "
            "search with another `--out`, or take it as it is with `--no-verify`"
        )


def _warn_of_first(space: Space, default: Config) -> None:
    """Warns of a first trial that cannot have the values of the recipe or rule."""
    if missing := left_out(space, default):
        named = ", ".join(f"`{name}={'none' if value is None else value}`" for name, value in missing.items())
        logger.warning(
            f"the space does not contain {named} of the recipe or rule, so the first trial has other values, and the "
            "best trial may be worse than a training without options; add these values, or compare with that"
        )


def _check_limits(trials: int, timeout: float | None, jobs: int) -> None:
    for name, value in (("trials", trials), ("jobs", jobs)):
        if value < 1:
            raise ConfigError(f"`{name}` is {value}; give at least 1")
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise ConfigError(f"`timeout` is {timeout}; give a number of seconds above 0")


def _describe(tried: Tried, best: Tried | None) -> str:
    values = [
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}" for name, value in tried.values.items()
    ]
    how = tried.outcome if tried.score is None else f"val {tried.score:.4f}"
    leader = "" if best is None else f" (best {best.score:.4f}, trial {best.number})"
    reason = "" if tried.reason is None else f"; {tried.reason}"
    return f"trial {tried.number}: {how}{leader}; {', '.join(values)}{reason}"
