"""Exact evaluation: the model over the whole graph, without histories and dropout."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lazygnn.graph import Graph, check_graph
from lazygnn.inference import evaluating
from lazygnn.model import Model
from lazygnn.task import Task
from lazygnn.training.criterion import calibrated_loss, tempered_losses
from lazygnn.training.metrics import THRESHOLDED, find_metric, gain, score_of_rows
from lazygnn.training.plain import as_model
from lazygnn.training.threshold import choose_threshold


@torch.no_grad()
def infer(model: nn.Module, graph: Graph, *, score: Callable[[Tensor], float] | None = None) -> Tensor:
    """Returns the outputs of every node in evaluation mode, [N, C].

    A module of your own gets the whole graph as one batch. With a `score` of the outputs of the validation nodes, the
    model first chooses what is chosen on validation.

    Examples:
        >>> from lazygnn import LazyGNN, infer
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> outputs = infer(LazyGNN(8, 16, 3, num_nodes=300), graph)
        >>> outputs.shape, outputs.requires_grad
        (torch.Size([300, 3]), False)
    """
    check_graph(graph)
    model = as_model(model)
    _release(model, graph)
    try:
        with evaluating(model):
            return model.infer(graph) if score is None else model.select(graph, score)
    finally:
        _release(model, graph)


def _release(model: Model, graph: Graph) -> None:
    # training and inference allocate blocks of different sizes; a graph in host memory means that the device is small
    if model.device.type == "cuda" and graph.device.type == "cpu":
        torch.cuda.empty_cache()


def evaluate(model: nn.Module, graph: Graph, metric: str = "auto") -> dict[str, float]:
    """Returns the score on every split of the graph: a fraction, or an error in the units of the targets.

    Args:
        model: A model, or any `nn.Module` that `Trainer` accepts.
        graph: The graph, on any device.
        metric: A metric of the task; `auto` is its default.

    Examples:
        >>> from lazygnn import LazyGNN, evaluate
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> scores = evaluate(LazyGNN(8, 16, 3, num_nodes=300), graph, "macro-f1")
        >>> list(scores), 0 <= scores["val"] <= 1
        (['train', 'val', 'test'], True)
    """
    return assess(model, graph, metric).scores


@dataclass(frozen=True)
class Assessment:
    """The scores of a model, and what it is chosen by.

    Attributes:
        scores: The score on every split.
        value: The value of the criterion on validation, higher is better; `None` without a validation split.
    """

    scores: dict[str, float]
    value: float | None


def assess(
    model: nn.Module,
    graph: Graph,
    metric: str = "auto",
    *,
    loss: Task | None = None,
    select: bool = False,
    learn_threshold: bool = False,
) -> Assessment:
    """Evaluates a model that competes with others, such as those of other epochs.

    Args:
        model: A model, or any `nn.Module` that `Trainer` accepts.
        graph: The graph, on any device.
        metric: A metric of the task; `auto` is its default.
        loss: The criterion is the score less the calibrated loss of this task; `None` means the score alone.
        select: Whether the model first chooses what is chosen on validation.
        learn_threshold: Whether its threshold is chosen, too.
    """
    check_graph(graph)
    name, _ = find_metric(metric, graph.task)

    targets = {split: graph.y[mask] for split, mask in graph.masks.items()}

    def scored(rows: Tensor, split: str, task: Task) -> float:
        return score_of_rows(find_metric(name, task)[1], rows, targets[split], split)

    def best_threshold(rows: Tensor) -> float:
        return choose_threshold(name, rows, targets["val"])

    def lost(rows: Tensor) -> float:
        assert loss is not None
        return calibrated_loss(tempered_losses(loss, rows, targets["val"]))

    threshold = best_threshold if select and learn_threshold else None
    return assess_by(model, graph, name, scored, None if loss is None else lost, threshold, select=select)


def assess_by(
    model: nn.Module,
    graph: Graph,
    metric: str,
    scored: Callable[[Tensor, str, Task], float],
    lost: Callable[[Tensor], float] | None,
    threshold: Callable[[Tensor], float] | None = None,
    *,
    select: bool,
) -> Assessment:
    """Evaluates a model by functions of its outputs on the nodes of a split, which may be a share of them, [T, C].

    Args:
        model: As for `assess`.
        graph: As for `assess`.
        metric: The name of the metric.
        scored: Returns the score on a split, for a task that may have another threshold.
        lost: Returns the calibrated loss on validation; `None` if it does not count.
        threshold: Returns the threshold that is best on validation; `None` if it is not chosen.
        select: As for `assess`.
    """
    model, validates = as_model(model), "val" in graph.masks

    def decided(rows: Tensor) -> Task:
        return model.decide(graph.task) if threshold is None else replace(graph.task, threshold=threshold(rows))

    def value(rows: Tensor, found: float | None = None) -> float:
        if found is None:
            # other metrics do not depend on the threshold
            found = scored(rows, "val", decided(rows) if metric in THRESHOLDED else graph.task)
        reached = gain(metric, found)
        return reached if lost is None else reached - lost(rows)

    outputs = infer(model, graph, score=value if select and validates else None)
    graph.task.check(outputs)
    if threshold is not None:
        model.set_threshold(threshold(outputs[graph.masks["val"]]))
    task = model.decide(graph.task)
    scores = {split: scored(outputs[mask], split, task) for split, mask in graph.masks.items()}
    return Assessment(scores, value(outputs[graph.masks["val"]], scores["val"]) if validates else None)
