"""Exact evaluation: the model over the whole graph, without histories and dropout."""

import torch
from torch import Tensor

from lazygnn.graph import Graph, check_graph
from lazygnn.model import Model
from lazygnn.training.metrics import find_metric, score


@torch.no_grad()
def infer(model: Model, graph: Graph) -> Tensor:
    """Returns the outputs of every node in evaluation mode, [N, C]."""
    check_graph(graph)
    was_training = model.training
    model.train(False)
    _release(model, graph)
    try:
        return model.infer(graph)
    finally:
        model.train(was_training)
        _release(model, graph)


def _release(model: Model, graph: Graph) -> None:
    # training and inference allocate blocks of different sizes; a graph in host memory means that the device is small
    if model.device.type == "cuda" and graph.device.type == "cpu":
        torch.cuda.empty_cache()


def evaluate(model: Model, graph: Graph, metric: str = "auto") -> dict[str, float]:
    """Returns the score on every split of the graph, as fractions."""
    check_graph(graph)
    _, function = find_metric(metric, graph.task)
    return score(function, infer(model, graph), graph.y, graph.masks)
