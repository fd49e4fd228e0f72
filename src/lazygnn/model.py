"""`Model`: the interface between models and training."""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.graph import Graph


class Model(nn.Module):
    """Computes the targets of a batch in training, and every node of a graph in inference.

    Attributes:
        replayable: Whether two steps on the same batch run the same operations, so that a GPU can replay them as a CUDA
            graph (`cuda_graphs`).
    """

    replayable = False

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""

    @abstractmethod
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C], on the device of the graph; reads no history."""

    @abstractmethod
    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer, from input to output."""

    def fill(self, batch: Batch) -> None:
        """Initializes the histories of the targets of a batch; does nothing for a model without histories."""

    def diagnose(self, graph: Graph) -> dict[str, float]:  # noqa: ARG002
        """Returns errors of the histories by name."""
        return {}

    @property
    def device(self) -> torch.device:
        """Returns the device of the weights."""
        return next(self.parameters()).device
