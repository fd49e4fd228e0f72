"""Compares runs: a table of scores, differences by common seeds, and curves over epochs and over time."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.table import Column, Table

from lazygnn.commands.paths import as_optional_path, as_paths
from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.methods import read_config
from lazygnn.run.curves import plot_comparison
from lazygnn.run.folder import Run
from lazygnn.run.paired import LEVEL, Difference, adjusted, paired_difference
from lazygnn.run.seeds import SeedRuns, summarize
from lazygnn.training.metrics import gain

logger = logging.getLogger(__name__)

Split = Literal["val", "test"]


@dataclass
class Candidate:
    """Runs that differ in their seed alone.

    Attributes:
        name: The folder that was given.
        results: The result of every run that has ended, by seed.
        logs: The training log of each of these runs, by seed.
        graphs: The fingerprints of the graphs that these runs have recorded.
    """

    name: str
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    logs: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    graphs: set[str] = field(default_factory=set)

    def scores(self, split: Split) -> dict[int, float]:
        """Returns the score of every seed."""
        return {seed: result[split] for seed, result in self.results.items() if result[split] is not None}


@dataclass(frozen=True)
class Comparison:
    """Several candidates, of which the first is the reference of the others.

    Attributes:
        candidates: In the order given.
        split: The split of the scores that differences are computed from.
        differences: The difference of each candidate but the first to the first.
        probabilities: The probability of each difference by chance, adjusted to their number.
    """

    candidates: list[Candidate]
    split: Split
    differences: list[Difference]
    probabilities: list[float | None]

    def record(self) -> dict[str, Any]:
        """Returns the comparison for JSON."""
        runs = [summarize(list(one.results.values()), Path(one.name)) | {"verdict": None} for one in self.candidates]
        for run, difference, p, verdict in zip(
            runs[1:], self.differences, self.probabilities, self.verdicts(), strict=True
        ):
            interval = None if difference.low is None else [difference.low, difference.high]
            run |= {
                "verdict": verdict,
                "difference": difference.mean,
                "interval": interval,
                "p": p,
                "common_seeds": list(difference.seeds),
            }
        return {"split": self.split, "reference": self.candidates[0].name, "runs": runs}

    def verdicts(self) -> list[str]:
        """Returns for each candidate but the first: better, worse, no difference, or unknown."""
        return [_verdict(found, p, self.metric) for found, p in zip(self.differences, self.probabilities, strict=True)]

    @property
    def metric(self) -> str:
        """Returns the name of the scores."""
        return str(next(iter(self.candidates[0].results.values()))["metric"])

    def sentences(self) -> list[str]:
        """Returns a sentence for each candidate but the first."""
        return [
            f"{one.name} against {self.candidates[0].name}: {_sentence(found, p, self.metric, self.split)}"
            for one, found, p in zip(self.candidates[1:], self.differences, self.probabilities, strict=True)
        ]

    def table(self) -> Table:
        """Returns a row for each candidate."""
        # names often differ at their end, which is not cut off in a narrow terminal
        run = Column("run", overflow="fold")
        table = Table(run, "method", "seeds", "val", "test", "best epoch", "seconds per epoch", title=self.metric)
        for one in self.candidates:
            found = summarize(list(one.results.values()), Path(one.name))
            scores = [_cell(found[split], found[f"{split}_deviation"]) for split in ("val", "test")]
            times = f"{found['best_epoch']:.0f}", f"{found['seconds_per_epoch']:.4f}"
            table.add_row(one.name, found["method"], str(len(one.results)), *scores, *times)
        return table


def compare_runs(
    paths: Sequence[Path | str],
    *,
    split: Split | None = None,
    picture: Path | str | None = None,
    verify: bool = True,
) -> Comparison:
    """Compares runs with the first of them, by the scores of common seeds.

    Args:
        paths: Run folders, or folders of several seeds. Run folders that differ in their seed alone count as one.
        split: The split to judge by; by default `test` if all runs have it, or else `val`.
        picture: A PNG file to draw the validation scores into, over epochs and over seconds of training.
        verify: Whether files of the runs that have changed since they were written are refused.
    """
    picture = as_optional_path(picture, "picture")
    if picture is not None and picture.suffix != ".png":
        raise ConfigError(f"cannot draw `{picture}`; choose a name that ends in .png")
    candidates = _candidates(as_paths(paths, "paths"), verify=verify)
    if len(candidates) < 2:
        raise ConfigError(
            f"found {len(candidates)} configuration to compare; give at least two, such as "
            "`lazygnn compare runs/one runs/other`"
        )
    _check_comparable(candidates)
    chosen: Split = split or ("test" if all(one.scores("test") for one in candidates) else "val")
    reference = candidates[0].scores(chosen)
    differences = [paired_difference(one.scores(chosen), reference) for one in candidates[1:]]
    known = [found.p for found in differences if found.p is not None]
    remaining = iter(adjusted(known))
    probabilities = [None if found.p is None else next(remaining) for found in differences]
    if picture is not None:
        plot_comparison({one.name: list(one.logs.values()) for one in candidates}, picture)
    return Comparison(candidates, chosen, differences, probabilities)


def _candidates(paths: Sequence[Path], *, verify: bool) -> list[Candidate]:
    found: list[Candidate] = []
    # run folders by all of their configuration but the seed
    alike: dict[str, Candidate] = {}
    for path in paths:
        if SeedRuns.is_at(path):
            seeds = SeedRuns(path, verify=verify)
            one = Candidate(str(path))
            for seed in seeds.seeds():
                run = seeds.find(seed)
                if run is not None:
                    _warn_of_change(run.config(read_config), seeds.config(seed, read_config), path)
                _add(one, run, seed)
            found.append(one)
            continue
        run = Run.open(path, verify=verify)
        config = run.config(read_config)
        one = alike.setdefault(_without_seed(config), Candidate(str(path)))
        if config.seed in one.results:
            # the same seed twice: a run of its own
            one = Candidate(str(path))
        _add(one, run, config.seed)
        if not any(other is one for other in found):
            found.append(one)
    for one in found:
        if not one.results:
            raise CheckpointError(
                f"no training in `{one.name}` has ended; resume it with `lazygnn train --resume {one.name}`"
            )
    return found


def _without_seed(config: Config) -> str:
    """Returns what runs that differ in their seed or their place have in common."""
    return config.model_copy(update={"seed": 0, "device": "auto", "root": None}).record()


def _warn_of_change(config: Config, started: Config, path: Path) -> None:
    if _without_seed(config) != _without_seed(started):
        logger.warning(
            "seed %d of `%s` was changed since the others were started, and is compared as one of them; extend all "
            "seeds alike",
            config.seed,
            path,
        )


def _add(candidate: Candidate, run: Run | None, seed: int) -> None:
    result = {} if run is None else run.result()
    if run is None or not result:
        logger.warning("seed %d of `%s` has not ended and is left out", seed, candidate.name)
        return
    candidate.results[seed], candidate.logs[seed] = result, run.log.read()
    # runs of earlier versions have no record of it
    if "graph" in (inputs := run.inputs()):
        candidate.graphs.add(str(inputs["graph"]))


def _check_comparable(candidates: Sequence[Candidate]) -> None:
    for name, remedy in (
        ("dataset", "compare runs on the same data set"),
        ("metric", "train them with the same `metric`"),
    ):
        values = {next(iter(one.results.values()))[name]: one.name for one in candidates}
        if len(values) > 1:
            (first, run), (second, other), *_ = values.items()
            raise ConfigError(f"`{run}` has {name} `{first}`, but `{other}` has `{second}`; {remedy}")
    if len(set().union(*(one.graphs for one in candidates))) > 1:
        logger.warning(
            "the graph has changed between these runs, so that their scores may be of other nodes; train all of them "
            "on the same graph"
        )


def _cell(mean: float | None, deviation: float | None) -> str:
    if mean is None:
        return ""
    return f"{mean:.4f}" if deviation is None else f"{mean:.4f} ± {deviation:.4f}"


def _verdict(found: Difference, p: float | None, metric: str) -> str:
    if found.mean is None or p is None:
        return "unknown"
    if p >= LEVEL:
        return "no difference"
    return "better" if gain(metric, found.mean) > 0 else "worse"


def _sentence(found: Difference, p: float | None, metric: str, split: Split) -> str:
    count = len(found.seeds)
    if found.mean is None or p is None:
        return (
            f"unknown, since they have {count or 'no'} seed{'' if count == 1 else 's'} in common; "
            "train both with the same `--seeds`, at least 2"
        )
    verdict = {"no difference": "no difference that is more than noise"}.get(word := _verdict(found, p, metric), word)
    interval = "" if found.low is None else f", 95 % interval {found.low:+.4f} to {found.high:+.4f}"
    return f"{verdict} on {split} ({found.mean:+.4f}{interval}, p = {p:.2g}, {count} common seeds)"


def check_split(name: str | None) -> Split | None:
    """Returns the name of a split to judge by; refuses others."""
    splits: Mapping[str, Split] = {"val": "val", "test": "test"}
    if name is not None and name not in splits:
        raise ConfigError(f"`split` is `{name}`; choose val or test")
    return None if name is None else splits[name]
