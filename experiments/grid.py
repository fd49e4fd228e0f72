"""Trains many configurations, several at a time, and stores every result, so that an interrupted grid can resume."""

import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import torch

from common.provenance import provenance
from experiments.graphs import load
from lazygnn import commands
from lazygnn.config import RENAMED, Config
from lazygnn.run.folder import Run

# the default of `diagnose_every` when the first results were stored
_FIRST_DIAGNOSE_EVERY = 20
# not tracked by git
RESULTS = Path(__file__).parents[1] / "runs" / "experiments"
# options by which a line tells a run from another one of the same method, data set and seed
_TOLD = 3

Log = Literal["none", "diagnosed", "all"]
Result = dict[str, Any]


def run_grid(name: str, configs: Sequence[Config], *, workers: int = 1, log: Log = "none") -> list[Result]:
    """Trains the configurations without a result in `<name>.jsonl` and returns the results of all `configs`.

    The first run that fails ends the others.

    Args:
        name: Of the store.
        configs: What to train; a configuration that is repeated is trained once.
        workers: Runs at a time, each in a process of its own; 0 trains in this process.
        log: Whether results include the log: of no run, of runs with diagnostics, or of all.
    """
    found = run_most(name, configs, workers=workers, log=log, keep_going=False)
    return [line for line in found if line is not None]


def run_most(
    name: str, configs: Sequence[Config], *, workers: int = 1, log: Log = "none", keep_going: bool = True
) -> list[Result | None]:
    """Does what `run_grid` does, but goes on where a run fails; `None` stands for its result."""
    path = RESULTS / f"{name}.jsonl"
    known = {line["key"]: line for line in _read(path)}
    missing = list({key_of(config): config for config in configs if key_of(config) not in known}.values())
    stored = sum(key_of(config) in known for config in configs)
    print(f"{stored} of {len(configs)} runs are stored; {len(missing)} to train", flush=True)
    if not missing:
        return [known[key_of(config)] for config in configs]
    names = _names(missing)
    for number, (config, line) in enumerate(_results(missing, workers, log), 1):
        if isinstance(line, Exception) and keep_going and not isinstance(line, BrokenExecutor):
            print(f"[{number}/{len(missing)}] {names[key_of(config)]} failed: {line}", flush=True)
            continue
        if isinstance(line, Exception):
            raise line
        known[line["key"]] = line
        append(path, line)
        print(f"[{number}/{len(missing)}] {names[key_of(config)]}: {_scores(line)}", flush=True)
    return [known.get(key_of(config)) for config in configs]


def key_of(config: Config) -> str:
    """Returns what identifies a configuration in a store."""
    # data folder, device and launch options do not identify a configuration; neither do options at their default, so
    # that stored results remain valid when an option is added
    trainer = config.trainer.model_dump(exclude_defaults=True, exclude={"cuda_graphs", "compile", "diagnose_every"})
    # off for the features of a known data set, which were never scaled
    if config.trainer.standardize_features == "off":
        del trainer["standardize_features"]
    if config.trainer.diagnose_every != _FIRST_DIAGNOSE_EVERY:
        trainer["diagnose_every"] = config.trainer.diagnose_every
    content = {
        "run": [config.method, config.dataset, config.seed],
        "trainer": trainer,
        "model": _old_names(config.model.model_dump(exclude_defaults=True)),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _results(configs: Sequence[Config], workers: int, log: Log) -> Iterator[tuple[Config, Result | Exception]]:
    """Yields each configuration with its result, or the reason that it has none, as they end.

    Without workers, all runs are in this process.
    """
    with tempfile.TemporaryDirectory() as scratch:
        if workers == 0:
            for config in configs:
                try:
                    yield config, _run(config, scratch, torch.get_num_threads(), log)
                except Exception as reason:
                    yield config, reason
            return
        threads = max(torch.get_num_threads() // workers, 1)
        # forked workers would inherit a CUDA context that does not survive the fork
        with ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent) as pool:
            futures = {pool.submit(_run, config, scratch, threads, log): config for config in configs}
            try:
                for future in as_completed(futures):
                    error = future.exception()
                    yield futures[future], error if isinstance(error, Exception) else future.result()
            except BaseException:
                # the pool would wait for runs that may take hours
                for worker in active_children():
                    worker.kill()
                raise


def remember(name: str, config: Config, measure: Callable[[], Result], *, stored: bool = False) -> Result | None:
    """Returns what `<name>.jsonl` has of a configuration; if that is missing it is measured, or `None` if `stored`."""
    path = RESULTS / f"{name}.jsonl"
    key = key_of(config)
    found = next((line for line in _read(path) if line["key"] == key), None)
    if found is None and not stored:
        about: Result = {"key": key, "config": config.model_dump(exclude={"root"})}
        found = about | measure() | provenance()
        append(path, found)
        print(f"{_name(config)}: measured", flush=True)
    return found


def append(path: Path, line: Result) -> None:
    """Adds a result to a store; a line that was cut off when it was written is dropped first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        file.seek(0)
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
        file.write(json.dumps(line).encode() + b"\n")


def stored_runs(name: str, configs: Sequence[Config]) -> list[Result | None]:
    """Returns the stored results of `configs`; `None` stands for a run that has not been trained."""
    known = {line["key"]: line for line in _read(RESULTS / f"{name}.jsonl")}
    return [known.get(key_of(config)) for config in configs]


def _run(config: Config, scratch: str, threads: int, log: Log) -> Result:
    torch.set_num_threads(threads)
    _reset_memory_statistics()
    kept = log == "all" or (log == "diagnosed" and config.trainer.diagnose_every > 0)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        graph = load(config.dataset, config.root)
        result = commands.train(config, Path(folder) / "run", quiet=True, graph=graph, curves=False)
        lines = _condensed(Run.open(Path(folder) / "run").log.read()) if kept else None
    del result["run"]
    if lines is not None:
        result["log"] = lines
    return {"key": key_of(config)} | result | {"config": config.model_dump(exclude={"root"})} | provenance()


def _condensed(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keeps the lines with scores or diagnostics, in four digits; the time of omitted lines is added to the next one.

    Diagnostics take time of their own, so such an epoch counts as much as the epoch before it.
    """
    kept, seconds, usual = [], 0.0, None
    for line in log:
        usual = line["seconds"] if usual is None or not line["laziness"] else usual
        seconds += usual
        if line["scores"] or line["laziness"]:
            short = {name: _rounded(line[name]) for name in ("loss", "scores", "laziness")}
            kept.append({"epoch": line["epoch"], "seconds": round(seconds, 4)} | short)
            seconds = 0.0
    return kept


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _reset_memory_statistics() -> None:
    # one process runs many configurations; the peak of one must not count for the next
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _old_names(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options under the names they had first, so that a result stays known when an option is renamed."""
    old = {new: name for name, new in RENAMED.items()}
    return {old.get(name, name): value for name, value in options.items()}


def _read(path: Path) -> list[Result]:
    """Returns the results of a store; a last line that was cut off when it was written does not count."""
    if not path.is_file():
        return []
    *lines, _ = path.read_text().split("\n")
    return [json.loads(line) for line in lines]


def _name(config: Config) -> str:
    return f"{config.dataset} {config.method} seed {config.seed}"


def _names(configs: Sequence[Config]) -> dict[str, str]:
    """Returns the names of configurations by their keys; one with the name of an earlier one says how it differs."""
    first: dict[str, dict[str, Any]] = {}
    names = {}
    for config in configs:
        name, options = _name(config), config.model.model_dump() | config.trainer.model_dump()
        usual = first.setdefault(name, options)
        told = [f"{option}={value}" for option, value in options.items() if value != usual[option]]
        told = [*told[:_TOLD], "..."] if len(told) > _TOLD else told
        names[key_of(config)] = f"{name} ({', '.join(told)})" if told else name
    return names


def _scores(line: Result) -> str:
    return f"val {line['val']:.4f} test {line['test']:.4f}"


def _end_with_parent() -> None:
    """Ends this worker when its parent has ended in any way; a signal to the parent does not reach it."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
