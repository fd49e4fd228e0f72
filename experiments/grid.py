"""Trains many configurations, several at a time, and stores every result, so that an interrupted grid can resume."""

import gc
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import torch

from common.provenance import provenance
from lazygnn import commands
from lazygnn.config import RENAMED, Config
from lazygnn.run.folder import Run

# the default of `diagnose_every` when the first results were stored
_FIRST_DIAGNOSE_EVERY = 20
# not tracked by git
RESULTS = Path(__file__).parents[1] / "runs" / "experiments"


def run_grid(name: str, configs: Sequence[Config], *, workers: int = 1, keep_log: bool = False) -> list[dict[str, Any]]:
    """Trains the configurations without a result in `<name>.jsonl` and returns the results of all `configs`.

    The first run that fails ends the others.
    With `keep_log`, the result of a run with diagnostics includes its log.
    """
    path = RESULTS / f"{name}.jsonl"
    known = {line["key"]: line for line in _read(path)}
    missing = [config for config in configs if _key(config) not in known]
    print(f"{len(configs) - len(missing)} of {len(configs)} runs are stored; {len(missing)} to train", flush=True)
    threads = max(torch.get_num_threads() // workers, 1)
    # forked workers would inherit a CUDA context that does not survive the fork
    with (
        tempfile.TemporaryDirectory() as scratch,
        ProcessPoolExecutor(workers, get_context("spawn"), _end_with_parent) as pool,
    ):
        futures = [pool.submit(_run, config, scratch, threads, keep_log) for config in missing]
        for number, future in enumerate(as_completed(futures), 1):
            if future.exception() is not None:
                # the pool would wait for runs that may take hours
                for worker in active_children():
                    worker.kill()
            line = future.result()
            known[line["key"]] = line
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            shown = (
                f"{line['dataset']} {line['method']} seed {line['seed']}: val {line['val']:.4f} test {line['test']:.4f}"
            )
            print(f"[{number}/{len(missing)}] {shown}", flush=True)
    return [known[_key(config)] for config in configs]


def stored_runs(name: str, configs: Sequence[Config]) -> list[dict[str, Any] | None]:
    """Returns the stored results of `configs`; `None` stands for a run that has not been trained."""
    known = {line["key"]: line for line in _read(RESULTS / f"{name}.jsonl")}
    return [known.get(_key(config)) for config in configs]


def _run(config: Config, scratch: str, threads: int, keep_log: bool) -> dict[str, Any]:
    torch.set_num_threads(threads)
    _reset_memory_statistics()
    diagnosed = config.trainer.diagnose_every > 0
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        result = commands.train(config, Path(folder) / "run", quiet=True)
        log = _condensed(Run.open(Path(folder) / "run").log.read()) if keep_log and diagnosed else None
    del result["run"]
    if log is not None:
        result["log"] = log
    return {"key": _key(config)} | result | {"config": config.model_dump(exclude={"root"})} | provenance()


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


def _key(config: Config) -> str:
    # data folder, device and launch options do not identify a configuration; neither do options at their default, so
    # that stored results remain valid when an option is added
    trainer = config.trainer.model_dump(exclude_defaults=True, exclude={"cuda_graphs", "compile", "diagnose_every"})
    if config.trainer.diagnose_every != _FIRST_DIAGNOSE_EVERY:
        trainer["diagnose_every"] = config.trainer.diagnose_every
    content = {
        "run": [config.method, config.dataset, config.seed],
        "trainer": trainer,
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
    """Ends this worker when its parent has ended in any way; a signal to the parent does not reach it."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
