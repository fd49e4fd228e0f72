"""A whole training with its evaluations: lazy steps beside exact ones, and a check of the result."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.report import OK, RESULTS, Report, Row, choose, median, verdict
from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.graph import Graph
from lazygnn.methods import build, resolve
from lazygnn.training import Trainer, evaluate

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

    Methods take turns, so that a machine that is slow for a while slows down all of them.

    Args:
        datasets: Names of data sets.
        device: The device to train on.
        root: Folder of data files.
        only: Methods to measure; none means all. The first is what the others are compared with.
        epochs: Epochs of every training; `None` takes those of the recipe or the rule.
        eval_every: Epochs between two evaluations.
        repeats: Trainings of every method.
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
            "repeats": f"{repeats}, methods in turn",
            "evaluation": f"after every {eval_every}th epoch, and once at the end",
            "check": "the scores are those of an exact evaluation; the test score is at most 1.5 points below APPNP's",
        },
    )
    values: dict[str, Any] = {"eval_every": eval_every, "diagnose_every": 0}
    values |= {} if epochs is None else {"epochs": epochs}
    for dataset in datasets:
        graph, rows = load_graph(dataset, root), list[Row]()
        methods = choose(only, dict.fromkeys(METHODS), "method")
        configs = {method: resolve(method, dataset, values, graph=graph) for method in methods}
        before = [
            {method: _train(config, graph, device) for method, config in configs.items()} for _ in range(repeats - 1)
        ]
        for method, config in configs.items():
            earlier = [turn[method].seconds for turn in before]
            measure = partial(_measure, config, graph, device, earlier, rows)
            rows.append(report.run({"dataset": dataset, "method": method}, measure))
    report.write()
    return report


class _Training(NamedTuple):
    seconds: float
    eval_seconds: float
    scores: dict[str, float]
    exact: bool


def _train(config: Config, graph: Graph, device: torch.device) -> _Training:
    torch.manual_seed(config.seed)
    built = build(config, graph, device)
    result = Trainer(built.model, built.loader, built.graph, config.trainer).fit()
    exact = evaluate(built.model, built.graph, config.trainer.metric) == result.scores
    return _Training(result.seconds + result.eval_seconds, result.eval_seconds, result.scores, exact)


def _measure(
    config: Config, graph: Graph, device: torch.device, earlier: Sequence[float], before: Sequence[Row]
) -> Row:
    found = _train(config, graph, device)
    times = median([*earlier, found.seconds])
    reference = before[0] if before and before[0]["status"] == OK else None
    return {
        **times,
        "eval seconds": found.eval_seconds,
        "ratio": 1.0 if reference is None else times["seconds"] / reference["seconds"],
        **found.scores,
        "config": config.model_dump(exclude={"root", "device"}),
        **verdict(
            scores_are_exact=found.exact,
            scores_are_those_of_exact_steps=reference is None or found.scores["test"] >= reference["test"] - NOISE,
        ),
    }
