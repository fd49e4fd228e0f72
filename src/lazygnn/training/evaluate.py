"""Exact evaluation: the model over the whole graph, no history read, no dropout."""

from typing import Protocol

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.training.metrics import find_metric, score


class TrainableModel(Protocol):
    """What the trainer asks of a model."""

    training: bool

    def __call__(self, batch: Batch) -> Tensor:
        """Outputs of the targets of a batch."""

    def infer(self, graph: Graph) -> Tensor:
        """Outputs of every node."""

    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Weights layer by layer."""

    def train(self, mode: bool = True) -> object:
        """Switches dropout and batch statistics."""

    def state_dict(self) -> dict[str, Tensor]:
        """All weights and buffers by name."""

    def load_state_dict(self, state: dict[str, Tensor]) -> object:
        """Takes weights and buffers back."""


@torch.no_grad()
def infer(model: TrainableModel, graph: Graph) -> Tensor:
    """Outputs of every node in evaluation mode, [N, C]."""
    was_training = model.training
    model.train(False)
    try:
        return model.infer(graph)
    finally:
        model.train(was_training)


def evaluate(model: TrainableModel, graph: Graph, metric: str = "auto") -> dict[str, float]:
    """The score on every split of the graph, as fractions."""
    _, function = find_metric(metric, graph.task)
    return score(function, infer(model, graph), graph.y, graph.masks)
