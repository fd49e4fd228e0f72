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

    Examples:
        >>> from lazygnn import LazyGNN, evaluate
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> scores = evaluate(LazyGNN(8, 16, 3, num_nodes=300), graph, "macro-f1")
        >>> list(scores), 0 <= scores["val"] <= 1
        (['train', 'val', 'test'], True)
    """
    check_graph(graph)
    name, function = find_metric(metric, graph.task)

    def validate(outputs: Tensor) -> float:
        return gain(name, score(function, outputs, graph.y, {"val": graph.masks["val"]})["val"])

    outputs = infer(model, graph, score=validate if select and "val" in graph.masks else None)
    return score(function, outputs, graph.y, graph.masks)
