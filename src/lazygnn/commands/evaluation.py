"""Evaluates the best weights of a run."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lazygnn.commands.device import choose_device
from lazygnn.commands.restoring import reload_graph, restore_model
from lazygnn.commands.result import make_result
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.graph import without_warnings
from lazygnn.methods import read_config
from lazygnn.reports import make_report
from lazygnn.run.folder import Run
from lazygnn.training import infer
from lazygnn.training.metrics import find_metric, score


def evaluate_run(
    path: Path,
    *,
    metric: str | None = None,
    device: str = "auto",
    root: str | None = None,
    correct_and_smooth: CorrectAndSmooth | None = None,
) -> dict[str, Any]:
    """Evaluates the best weights of a run on its own data set, exactly and without histories.

    Args:
        path: The run folder.
        metric: Another metric than that of the run.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        correct_and_smooth: Changes the predictions before they are scored.

    Returns:
        The result, as `train` returns it; the values of `correct_and_smooth` follow if that is given.
    """
    (result,) = evaluate_by_metrics(
        path, [] if metric is None else [metric], device=device, root=root, correct_and_smooth=correct_and_smooth
    )
    return result


def evaluate_by_metrics(
    path: Path,
    metrics: Sequence[str] = (),
    *,
    device: str = "auto",
    root: str | None = None,
    correct_and_smooth: CorrectAndSmooth | None = None,
    report: bool = False,
) -> list[dict[str, Any]]:
    """Evaluates the best weights of a run by several metrics; the outputs are computed once.

    Args:
        path: The run folder.
        metrics: Names of metrics; none means that of the run.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        correct_and_smooth: Changes the predictions before they are scored.
        report: Whether to write `report.json` into the run folder: classes, calibration, and where the run errs.

    Returns:
        A result for every metric, as `train` returns it.
    """
    run = Run.open(path)
    config, weights = run.config(read_config), run.load_weights()
    chosen = choose_device(device)
    with without_warnings():
        graph = reload_graph(config, root)
    if correct_and_smooth is not None:
        correct_and_smooth.check(graph)
    found = [find_metric(name, graph.task) for name in metrics or [config.trainer.metric]]
    loaded = graph
    model, graph = restore_model(run, weights, graph, chosen)
    logits, trained, changed = infer(model, graph), run.result(), {}
    if correct_and_smooth is not None:
        logits = correct_and_smooth.apply_to_logits(logits, graph, device=chosen)
        changed = {"correct_and_smooth": asdict(correct_and_smooth)}
    if report:
        # a method may add edges to its graph, so the report is about the one that was loaded
        run.save_report(make_report(logits, loaded) | changed)
    results = []
    for name, metric in found:
        scores = score(metric, logits, graph.y, graph.masks)
        results.append(make_result(config, name, scores, trained=trained, device=chosen, path=path) | changed)
    return results
