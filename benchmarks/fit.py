"""A whole training with its evaluations: lazy steps beside exact ones, and a check of the result."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import OK, RESULTS, Report, Row, choose, verdict
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
    folder: Path = RESULTS,
) -> Report:
    """Trains every method on every data set, from the same seed and with as many evaluations.

    Args:
        datasets: Names of data sets.
        device: The device to train on.
        root: Folder of data files.
        only: Methods to measure; none means all. The first is what the others are compared with.
        epochs: Epochs of every training; `None` takes those of the recipe or the rule.
        eval_every: Epochs between two evaluations.
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
            "s": "all epochs and all evaluations, without reading data and building the model",
            "evaluation": f"after every {eval_every}th epoch, and once at the end",
            "check": "the scores are those of an exact evaluation; the test score is at most 1.5 points below APPNP's",
        },
    )
    for dataset in datasets:
        graph, rows = load_graph(dataset, root), list[Row]()
        for method in choose(only, dict.fromkeys(METHODS), "method"):
            values: dict[str, Any] = {"eval_every": eval_every, "diagnose_every": 0}
            if epochs is not None:
                values["epochs"] = epochs
            config = resolve(method, dataset, values, graph=graph)
            found = report.run({"dataset": dataset, "method": method}, partial(_measure, config, graph, device, rows))
            rows.append(found)
    report.write()
    return report


def _measure(config: Config, graph: Graph, device: torch.device, before: Sequence[Row]) -> Row:
    torch.manual_seed(config.seed)
    built = build(config, graph, device)
    result = Trainer(built.model, built.loader, built.graph, config.trainer).fit()
    seconds, reference = result.seconds + result.eval_seconds, before[0] if before else None
    if reference is not None and reference["status"] != OK:
        reference = None
    again = evaluate(built.model, built.graph, config.trainer.metric)
    return {
        "seconds": seconds,
        "all_seconds": [seconds],
        "eval seconds": result.eval_seconds,
        "ratio": 1.0 if reference is None else seconds / reference["seconds"],
        **result.scores,
        "config": config.model_dump(exclude={"root", "device"}),
        **verdict(
            scores_are_exact=again == result.scores,
            scores_are_those_of_exact_steps=reference is None or result.scores["test"] >= reference["test"] - NOISE,
        ),
    }
