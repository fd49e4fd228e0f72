"""The folder of several runs that differ in their seed, and the mean and deviation of their scores."""

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError, reason
from lazygnn.files import discard, write_file
from lazygnn.run.claim import check_unused, make_folder
from lazygnn.run.digests import Digests
from lazygnn.run.folder import CONFIG, RESULT, SEEDS, Run, read_unchanged


class SeedRuns:
    """A folder with a run folder for every seed.

    Args:
        path: The folder.
        verify: Whether files are refused that have changed since they were written.
    """

    def __init__(self, path: Path, *, verify: bool = True) -> None:
        self.path, self.verify = path, verify
        self._digests = Digests(path, verify=verify)

    @staticmethod
    def create(path: Path, config: Config, num_seeds: int) -> "SeedRuns":
        """Creates the folder for the seeds from that of `config` on; refuses a folder that is not empty."""
        SeedRuns.check_new(path)
        content = {"seeds": [config.seed + index for index in range(num_seeds)], "config": json.loads(config.record())}
        try:
            make_folder(path)
            SeedRuns(path)._write_json(SEEDS, content)
        except OSError as error:
            raise ConfigError(f"cannot write the folder `{path}`: {reason(error)}; choose another `--out`") from error
        return SeedRuns(path)

    @staticmethod
    def check_new(path: Path) -> None:
        """Refuses a folder that is not empty, so that nothing is lost."""
        check_unused(path, f"resume it with `lazygnn train --resume {path}`, choose another `--out` or remove it")

    @staticmethod
    def is_at(path: Path) -> bool:
        """Returns whether a folder holds runs of several seeds."""
        return (path / SEEDS).is_file()

    def seeds(self) -> list[int]:
        """Returns the seeds in their order."""
        return list(self._content()["seeds"])

    def config(self, seed: int, read: Callable[[dict[str, Any]], Config]) -> Config:
        """Returns the configuration of a seed; `read` is `lazygnn.methods.read_config`."""
        try:
            return read({**self._content()["config"], "seed": seed})
        except ConfigError as error:
            raise CheckpointError(f"`{self.path / SEEDS}` does not hold a configuration: {error}") from error

    def run_path(self, seed: int) -> Path:
        """Returns the run folder of a seed."""
        return self.path / f"seed-{seed}"

    def find(self, seed: int) -> Run | None:
        """Returns the run of a seed, or `None` before its start."""
        path = self.run_path(seed)
        return Run.open(path, verify=self.verify) if (path / CONFIG).is_file() else None

    def started(self, seed: int) -> Run | None:
        """Returns the run of a seed, or `None` after removing what a crash has left of its start."""
        run = self.find(seed)
        if run is None:
            discard(self.run_path(seed))
        return run

    def save_result(self, result: dict[str, Any]) -> None:
        """Writes the summary of all seeds."""
        self._write_json(RESULT, result)

    def _write_json(self, name: str, values: dict[str, Any]) -> None:
        content = (json.dumps(values, indent=2, allow_nan=False) + "\n").encode()
        self._digests.expect((name, content))
        write_file(self.path / name, content)

    def _content(self) -> dict[str, Any]:
        content = read_unchanged(self.path / SEEDS, self._digests)
        seeds = content.get("seeds")
        if not isinstance(seeds, list) or not isinstance(content.get("config"), dict):
            raise CheckpointError(f"`{self.path / SEEDS}` was not written by lazygnn; give a folder that `train` wrote")
        return content


def summarize(results: Sequence[dict[str, Any]], path: Path) -> dict[str, Any]:
    """Returns the result of several seeds: means, and deviations of the scores.

    Args:
        results: The result of every seed, at least one.
        path: The folder that holds the runs.
    """
    summary = {name: results[0][name] for name in ("method", "dataset", "metric")}
    summary["seeds"] = [result["seed"] for result in results]
    for split in ("val", "test"):
        summary[split], summary[f"{split}_deviation"] = mean_and_deviation([result[split] for result in results])
    summary["epochs"] = statistics.fmean(result["epochs"] for result in results)
    summary["best_epoch"] = statistics.fmean(result["best_epoch"] for result in results)
    summary["seconds_per_epoch"] = statistics.median(result["seconds_per_epoch"] for result in results)
    summary["peak_memory_mib"] = max(result["peak_memory_mib"] for result in results)
    return summary | {"run": str(path)}


def mean_and_deviation(scores: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Returns mean and sample deviation; no score at all has neither, a single one has no deviation."""
    known = [score for score in scores if score is not None]
    if not known:
        return None, None
    return statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None


def describe_summary(summary: dict[str, Any]) -> str:
    """Returns a summary in words, such as `accuracy over 5 seeds: val 0.8120 ± 0.0040, test 0.8010 ± 0.0050`."""
    count = len(summary["seeds"])
    return f"{summary['metric']} over {count} seed{'s' if count > 1 else ''}: {describe_scores(summary)}"


def describe_scores(result: dict[str, Any]) -> str:
    """Returns the scores of a result in words, with their deviations if it has them."""
    scores = []
    for split in ("val", "test"):
        if (mean := result[split]) is not None:
            deviation = result.get(f"{split}_deviation")
            scores.append(f"{split} {mean:.4f}" + ("" if deviation is None else f" ± {deviation:.4f}"))
    return ", ".join(scores) or "no scores"
