"""Exact evaluation: the model over the whole graph, without histories and dropout."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from lazygnn.graph import Graph, check_graph
from lazygnn.model import Model
from lazygnn.training.metrics import find_metric, gain, score
from lazygnn.training.plain import as_model


@torch.no_grad()
def infer(model: nn.Module, graph: Graph, *, score: Callable[[Tensor], float] | None = None) -> Tensor:
    """Returns the outputs of every node in evaluation mode, [N, C].

    A module of your own gets the whole graph as one batch. With a `score`, the model first chooses what is chosen on
    validation.
    """
    check_graph(graph)
    model = as_model(model)
    was_training = model.training
    model.train(False)
    _release(model, graph)
    try:
        return model.infer(graph) if score is None else model.select(graph, score)
    finally:
        model.train(was_training)
        _release(model, graph)


def _release(model: Model, graph: Graph) -> None:
    # training and inference allocate blocks of different sizes; a graph in host memory means that the device is small
    if model.device.type == "cuda" and graph.device.type == "cpu":
        torch.cuda.empty_cache()


def evaluate(model: nn.Module, graph: Graph, metric: str = "auto", *, select: bool = False) -> dict[str, float]:
    """Returns the score on every split of the graph: a fraction, or an error in the units of the targets.

    Args:
        model: A model, or any `nn.Module` that `Trainer` accepts.
        graph: The graph, on any device.
        metric: A metric of the task; `auto` is its default.
        select: Whether the model chooses what is chosen on validation, as in training.
    """
    check_graph(graph)
    name, function = find_metric(metric, graph.task)

    def validate(outputs: Tensor) -> float:
        return gain(name, score(function, outputs, graph.y, {"val": graph.masks["val"]})["val"])

    outputs = infer(model, graph, score=validate if select and "val" in graph.masks else None)
    return score(function, outputs, graph.y, graph.masks)
