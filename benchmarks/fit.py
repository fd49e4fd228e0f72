"""A whole training with its evaluations: lazy steps beside exact ones, and a check of the result."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import OK, RESULTS, Report, Row, choose, median, verdict
from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.graph import Graph
from lazygnn.methods import build, resolve
from lazygnn.training import EpochReport, Trainer, evaluate

METHODS = ("appnp", "lazygnn")
# a test score of lazy steps may be this much below that of exact ones: three deviations between seeds
NOISE = 0.015
COLUMNS = {
    "data set": "dataset",
    "method": "method",
    "s": "seconds",
    "of them evaluation": "eval seconds",
    "of APPNP": "ratio",
    "validation": "val",
    "test": "test",
    "status": "status",
}


def main(
    datasets: Sequence[str],
    device: torch.device,
    *,
    root: str | None = None,
    only: Sequence[str] = (),
    epochs: int | None = None,
    eval_every: int = 1,
    repeats: int = 1,
    folder: Path = RESULTS,
) -> Report:
    """Trains every method on every data set, from the same seed and with as many evaluations.

    Methods take turns after every epoch, so that a machine that is slow for a while slows down all of them.

    Args:
        datasets: Names of data sets.
        device: The device to train on.
        root: Folder of data files.
        only: Methods to measure; none means all. The first is what the others are compared with.
        epochs: Epochs of every training; `None` takes those of the recipe or the rule.
        eval_every: Epochs between two evaluations.
        repeats: Trainings of every method, all from the same seed.
        folder: Where the result is written.
    """
    report = Report(
        "fit",
        device,
        keys=("dataset", "method"),
        times=("seconds",),
        columns=COLUMNS,
        folder=folder,
        facts={
            "threads": torch.get_num_threads(),
            "s": "all epochs and all evaluations, without reading data and building the model; median",
            "repeats": repeats,
            "order": "methods take turns after every epoch",
            "evaluation": f"after every {eval_every}th epoch, and once at the end",
            "check": "the scores are those of an exact evaluation; the test score is at most 1.5 points below APPNP's",
        },
    )
    values: dict[str, Any] = {"eval_every": eval_every, "diagnose_every": 0}
    values |= {} if epochs is None else {"epochs": epochs}
    for dataset in datasets:
        graph, rows = load_graph(dataset, root), list[Row]()
        methods = choose(only, dict.fromkeys(METHODS), "method")
        configs = [resolve(method, dataset, values, graph=graph) for method in methods]
        turns = [_train_in_turn([_Training(config, graph, device) for config in configs]) for _ in range(repeats)]
        for config, trainings in zip(configs, zip(*turns, strict=True), strict=True):
            key = {"dataset": dataset, "method": config.method}
            rows.append(report.run(key, partial(_measure, trainings, rows)))
    report.write()
    return report


class _Paused(Exception):
    """An epoch is over."""


class _Training:
    """A training that runs epoch by epoch, with random numbers of its own."""

    def __init__(self, config: Config, graph: Graph, device: torch.device) -> None:
        torch.manual_seed(config.seed)
        self.config, self.built = config, build(config, graph, device)
        self.trainer = Trainer(self.built.model, self.built.loader, self.built.graph, config.trainer)
        self.trainer.on_epoch = self._pause
        self._random = torch.get_rng_state()

    def run_epoch(self) -> bool:
        """Trains an epoch with its evaluation; returns whether there was one left."""
        torch.set_rng_state(self._random)
        try:
            self.trainer.run()
        except _Paused:
            self._random = torch.get_rng_state()
            return True
        return False

    def _pause(self, report: EpochReport) -> None:
        raise _Paused(report.epoch)


def _train_in_turn(trainings: Sequence[_Training]) -> Sequence[_Training]:
    while True in [training.run_epoch() for training in trainings]:
        pass
    return trainings


def _measure(trainings: Sequence[_Training], before: Sequence[Row]) -> Row:
    results = [training.trainer.finish() for training in trainings]
    last, found = trainings[-1], results[-1]
    again = evaluate(last.built.model, last.built.graph, last.config.trainer.metric)
    times = median([each.seconds + each.eval_seconds for each in results])
    reference = before[0] if before and before[0]["status"] == OK else None
    return {
        **times,
        "eval seconds": median([each.eval_seconds for each in results])["seconds"],
        "ratio": 1.0 if reference is None else times["seconds"] / reference["seconds"],
        **found.scores,
        "config": last.config.model_dump(exclude={"root", "device"}),
        **verdict(
            scores_are_exact=again == found.scores,
            scores_are_those_of_exact_steps=reference is None or found.scores["test"] >= reference["test"] - NOISE,
        ),
    }
