"""Runs many configurations, several at a time, and keeps every result: stopped half-way, it goes on where it was."""

import gc
import hashlib
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from experiments.provenance import provenance
from lazygnn import commands
from lazygnn.config import RENAMED, Config
from lazygnn.run.folder import Run

RESULTS = Path(__file__).parent / "results"


def run_grid(name: str, configs: Sequence[Config], *, workers: int = 1, keep_log: bool = False) -> list[dict[str, Any]]:
    """Trains what has no result in `results/<name>.jsonl` yet and returns the results of all `configs`.

    The first run that fails ends the others.
    With `keep_log`, what was logged is kept too, of runs that are looked at on their way.
    """
    path = RESULTS / f"{name}.jsonl"
    known = {line["key"]: line for line in _read(path)}
    missing = [config for config in configs if _key(config) not in known]
    print(f"{len(configs) - len(missing)} of {len(configs)} runs are known; {len(missing)} to go", flush=True)
    threads = max(torch.get_num_threads() // workers, 1)
    # forked workers would inherit a CUDA context that does not survive the fork
    with (
        tempfile.TemporaryDirectory() as scratch,
        ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent) as pool,
    ):
        futures = [pool.submit(_run, config, scratch, threads, keep_log) for config in missing]
        for number, future in enumerate(as_completed(futures), 1):
            if future.exception() is not None:
                # the pool would wait for the runs that are under way, hours perhaps
                for worker in active_children():
                    worker.kill()
            line = future.result()
            known[line["key"]] = line
            path.parent.mkdir(exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            shown = (
                f"{line['dataset']} {line['method']} seed {line['seed']}: val {line['val']:.4f} test {line['test']:.4f}"
            )
            print(f"[{number}/{len(missing)}] {shown}", flush=True)
    return [known[_key(config)] for config in configs]


def mean_and_deviation(values: Sequence[float]) -> str:
    """`82.9 ± 0.4` in percent, with the unbiased deviation."""
    percent = [100 * value for value in values]
    deviation = statistics.stdev(percent) if len(percent) > 1 else 0.0
    return f"{statistics.mean(percent):.2f} ± {deviation:.2f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for the docs."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _run(config: Config, scratch: str, threads: int, keep_log: bool) -> dict[str, Any]:
    torch.set_num_threads(threads)
    _forget_memory()
    looks = config.trainer.diagnose_every > 0
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        result = commands.train(config, Path(folder) / "run", quiet=True)
        log = _looked_at(Run.open(Path(folder) / "run").log.read()) if keep_log and looks else None
    del result["run"]
    if log is not None:
        result["log"] = log
    return {"key": _key(config)} | result | {"config": config.model_dump(exclude={"root"})} | provenance()


def _looked_at(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines with scores or looks, a few digits of each; the time of what was left out is counted in the next.

    A look takes time of its own, so an epoch that was looked at counts as much as the one before it.
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


def _forget_memory() -> None:
    # one process runs many configurations; the peak of one must not count for the next
    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _key(config: Config) -> str:
    # where the data lie, what computes and how it is launched is no part of a configuration's identity, nor is an
    # option at its default, so that a result stays known when a new option comes along
    content = {
        "run": [config.method, config.dataset, config.seed],
        "trainer": config.trainer.model_dump(exclude_defaults=True, exclude={"cuda_graphs", "compile"}),
        "model": _old_names(config.model.model_dump(exclude_defaults=True)),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _old_names(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options under the names they had first, so that a result stays known when an option is renamed."""
    old = {new: name for name, new in RENAMED.items()}
    return {old.get(name, name): value for name, value in options.items()}


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _end_with_parent() -> None:
    """Ends this worker when the process that started it has ended, in whatever way; a signal would not reach it."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
