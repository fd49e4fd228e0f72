"""`make_report`: everything that can be said about the outputs of a model, as values for JSON.

`N` nodes of the graph, `T` nodes of a split, `C` outputs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from lazygnn.errors import GraphError, wrong_type
from lazygnn.graph import Graph, check_graph
from lazygnn.reports.calibration import calibration, fit_temperature
from lazygnn.reports.classes import class_table, confusion_matrix
from lazygnn.reports.groups import by_agreement, by_degree, by_distance
from lazygnn.reports.mistakes import find_mistakes
from lazygnn.reports.numbers import by_target, number_table
from lazygnn.training.metrics import find_metric, predict_class, score

FORMAT, VERSION = "lazygnn-report", 1
_MEASURES = {
    "single-label": "accuracy",
    "multi-label": "share of labels predicted right",
    "regression": "mean absolute error",
}


def make_report(outputs: Tensor, graph: Graph, *, split: str | None = None) -> dict[str, Any]:
    """Returns a report of the outputs on one split of a graph; JSON can hold it.

    Args:
        outputs: Of every node, [N, C], as `infer` returns them.
        graph: The graph, with the nodes in the same order.
        split: `test`, `val` or `train`; by default the first of these that the graph has.
    """
    check_graph(graph)
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != (graph.num_nodes, graph.task.num_outputs):
        expected = (graph.num_nodes, graph.task.num_outputs)
        raise GraphError(wrong_type("outputs", outputs, f"give the outputs of every node, {expected}"))
    split = _choose_split(graph, split)
    graph, outputs = graph.to("cpu"), outputs.detach().cpu()
    nodes = graph.masks[split].nonzero()[:, 0]
    found, y = outputs[nodes], graph.y[nodes]
    ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
    names = _names(graph)
    # refuses outputs that are not finite
    report: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "task": graph.task.kind,
        "split": split,
        "nodes": len(nodes),
        "scores": _scores(outputs, graph),
    }
    if graph.task.kind == "multi-label":
        report["threshold"] = graph.task.threshold
    if graph.task.kind == "regression":
        report |= {"numbers": number_table(found, y, names), "by_target": by_target(found, y, names)}
    else:
        report |= _classes(found, y, graph, names) | {"calibration": _calibration(outputs, graph, split)}
    report["errs"] = _errs(found, y, graph, nodes)
    report["mistakes"] = find_mistakes(found, y, graph.task, ids[nodes.numpy()], names)
    return report


def _choose_split(graph: Graph, split: str | None) -> str:
    known = [name for name in ("test", "val", "train") if name in graph.masks]
    if not known:
        raise GraphError(f"graph `{graph.name}` has no splits; give it labels and a `test_mask` to report on")
    if split is not None and split not in known:
        raise GraphError(f"graph `{graph.name}` has no split `{split}`; choose one of: {', '.join(known)}")
    return known[0] if split is None else split


def _names(graph: Graph) -> list[str]:
    if graph.class_names is not None:
        return list(graph.class_names)
    return [str(index) for index in range(graph.task.num_outputs)]


def _scores(outputs: Tensor, graph: Graph) -> dict[str, dict[str, float]]:
    """Returns the score of every split by every metric of the task; those that are not defined are left out."""
    scores: dict[str, dict[str, float]] = {}
    for name in graph.task.metrics:
        _, metric = find_metric(name, graph.task)
        scores[name] = {}
        for split, mask in graph.masks.items():
            try:
                scores[name] |= score(metric, outputs, graph.y, {split: mask})
            except GraphError:
                continue
    return scores


def _classes(outputs: Tensor, y: Tensor, graph: Graph, names: list[str]) -> dict[str, Any]:
    if graph.task.kind == "multi-label":
        return {"classes": class_table(graph.task.predict_labels(outputs), y, names)}
    predicted = predict_class(outputs)
    return {
        "classes": class_table(predicted, y, names),
        "confusion": confusion_matrix(predicted, y, graph.task.num_outputs),
    }


def _calibration(outputs: Tensor, graph: Graph, split: str) -> dict[str, Any]:
    """Returns the calibration on a split before and after the temperature that is fitted on validation."""
    judged, task = graph.masks[split], graph.task
    before = calibration(outputs[judged], graph.y[judged], task)
    fitted = graph.masks.get("val")
    temperature = None if fitted is None else fit_temperature(outputs[fitted], graph.y[fitted], task)
    if temperature is None:
        return {"temperature": None, "before": before, "after": None}
    after = calibration(outputs[judged].double() / temperature, graph.y[judged], task)
    return {"temperature": temperature, "before": before, "after": after}


def _errs(outputs: Tensor, y: Tensor, graph: Graph, nodes: Tensor) -> dict[str, Any]:
    kind = graph.task.kind
    if kind == "single-label":
        values = (predict_class(outputs) == y).double()
    elif kind == "multi-label":
        values = (graph.task.predict_labels(outputs) == (y > 0)).double().mean(dim=1)
    else:
        values = (outputs.double() - y.double()).abs().mean(dim=1)
    grouped: dict[str, Callable[[Graph, Tensor, Tensor], list[dict[str, Any]]]] = {"degree": by_degree}
    if "train" in graph.masks:
        grouped["distance"] = by_distance
    if kind == "single-label":
        grouped["agreement"] = by_agreement
    groups = {name: group(graph, nodes, values) for name, group in grouped.items()}
    return {"measure": _MEASURES[kind], "overall": float(values.mean()), **groups}
