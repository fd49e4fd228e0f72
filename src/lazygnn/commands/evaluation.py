"""Evaluates the best weights of a run."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from lazygnn.commands.loading import check_labels, check_read_labels, fitting
from lazygnn.commands.paths import as_optional_path, as_path
from lazygnn.commands.restoring import open_run
from lazygnn.commands.result import make_result
from lazygnn.commands.smoothing import smooth, warn_of_loss
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.data import load_graph
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.reports import make_report
from lazygnn.training import infer
from lazygnn.training.metrics import find_metric, score


def evaluate_run(
    path: Path | str,
    *,
    metric: str | None = None,
    device: str = "auto",
    root: str | None = None,
    trained_on: Graph | None = None,
    correct_and_smooth: CorrectAndSmooth | None = None,
    graph_file: Path | str | None = None,
    verify: bool = True,
) -> dict[str, Any]:
    """Evaluates the best weights of a run on its own data set or another graph, exactly and without histories.

    Args:
        path: The run folder.
        metric: Another metric than that of the run.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        trained_on: The graph that the run was trained on, if it is loaded already; by default it is found by its name.
        correct_and_smooth: Changes the predictions before they are scored.
        graph_file: Another graph with the same features and classes, to evaluate in place of that of the run.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.

    Returns:
        The result, as `train` returns it; the values of `correct_and_smooth` follow if that is given. With another
        graph, `labeled` is the score on all of its nodes with a label that the predictions do not read, and
        `labeled_nodes` is their number.
    """
    (result,) = evaluate_by_metrics(
        path,
        [] if metric is None else [metric],
        device=device,
        root=root,
        trained_on=trained_on,
        correct_and_smooth=correct_and_smooth,
        graph_file=graph_file,
        verify=verify,
    )
    return result


def evaluate_by_metrics(
    path: Path | str,
    metrics: Sequence[str] = (),
    *,
    device: str = "auto",
    root: str | None = None,
    trained_on: Graph | None = None,
    correct_and_smooth: CorrectAndSmooth | None = None,
    graph_file: Path | str | None = None,
    report: bool = False,
    verify: bool = True,
) -> list[dict[str, Any]]:
    """Evaluates the best weights of a run by several metrics; the outputs are computed once.

    Args:
        path: The run folder.
        metrics: Names of metrics; none means that of the run.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        trained_on: The graph that the run was trained on, if it is loaded already; by default it is found by its name.
        correct_and_smooth: Changes the predictions before they are scored.
        graph_file: Another graph with the same features and classes, to evaluate in place of that of the run.
        report: Whether to write `report.json` into the run folder: classes, calibration, and where the run errs.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.

    Returns:
        A result for every metric, as `train` returns it.
    """
    path, graph_file = as_path(path, "path"), as_optional_path(graph_file, "graph_file")
    if report and graph_file is not None:
        raise ConfigError("`--report` is about the graph of the run; omit `--report` or `--graph`")
    opened = open_run(path, device, root, trained_on=trained_on, verify=verify, own=graph_file is None)
    run, config, chosen, graph = opened.run, opened.config, opened.device, opened.graph
    elsewhere = {}
    if graph_file is not None:
        other = load_graph(graph_file, root)
        check_labels(other, opened.graph)
        graph, elsewhere = fitting(other, opened.graph), {"graph": str(graph_file)}
    if correct_and_smooth is not None:
        correct_and_smooth.check(graph)
    names = [find_metric(name, graph.task)[0] for name in metrics or [config.trainer.metric]]
    loaded = graph
    model, graph = opened.restore(graph)
    labeled, counts = {}, {}
    if graph_file is not None:
        check_read_labels(model, other, opened.graph)
        scored = _scored(graph, known=model.reads_labels or correct_and_smooth is not None)
        labeled, counts = {"labeled": scored}, {"labeled_nodes": int(scored.sum())}
    logits, trained, changed = infer(model, graph), run.result(), {}
    plain = logits, graph
    if correct_and_smooth is not None:
        own = graph_file is None
        logits, graph = smooth(correct_and_smooth, logits, graph, config, chosen, choose=own)
        changed = {"correct_and_smooth": asdict(correct_and_smooth)}
    if report:
        # a method may add edges to its graph, so the report is about the one that was loaded
        run.save_report(make_report(logits, replace(loaded, task=graph.task)) | changed)
    results = []
    for name in names:
        _, metric = find_metric(name, graph.task)
        scores = score(metric, logits, graph.y, graph.masks)
        if correct_and_smooth is not None:
            warn_of_loss(name, *plain, scores)
        result = make_result(config, name, scores, trained=trained, task=graph.task, device=chosen, path=path)
        results.append(result | changed | elsewhere | score(metric, logits, graph.y, labeled) | counts)
    return results


def _scored(graph: Graph, *, known: bool) -> Tensor:
    """Returns the labeled nodes of a graph to score, [N] bool: without training nodes if their labels are read."""
    labeled = graph.task.labeled(graph.y)
    if known and "train" in graph.masks:
        labeled &= ~graph.masks["train"]
    if not bool(labeled.any()):
        raise GraphError(
            f"graph `{graph.name}` has no label outside of its `train_mask`, and the predictions read those inside; "
            "take the nodes to score out of the `train_mask`"
        )
    return labeled
