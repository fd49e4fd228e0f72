"""What training asks of a model; every method of the library is one."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph


class Model(nn.Module):
    """Outputs for the targets of a batch in training, and for every node of a graph in inference.

    Attributes:
        replayable: Whether two steps on one batch differ by the contents of tensors alone, and not by what Python does,
            so that a GPU may replay them (`cuda_graphs`).
    """

    replayable = False

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Outputs of the targets, [T, C]."""

    @abstractmethod
    def infer(self, graph: Graph) -> Tensor:
        """Outputs of every node, [N, C], where the graph lies; reads no history."""

    @abstractmethod
    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """The weights layer by layer, from input to output."""

    def fill(self, batch: Batch) -> None:
        """Gives the targets of a batch a first history; a model without histories has nothing to do."""

    def diagnose(self, graph: Graph) -> dict[str, float]:  # noqa: ARG002
        """How far the histories are from what they stand for, by name."""
        return {}

    @property
    def device(self) -> torch.device:
        """Where the weights live."""
        return next(self.parameters()).device
