"""`Model`: the interface between models and training."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from lazygnn.batch import Batch
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.task import Task

EMBEDDING_REMEDY = (
    "train one of: mlp, appnp, appnp-gas, lazygnn, lazygnn-paper, lazygnn-deep, gcn, gcn-gas, graphsage, gcnii or "
    "gcnii-gas"
)


# the name of the threshold among the weights of a model
THRESHOLD = "label_threshold"


class Model(nn.Module):
    """Computes the targets of a batch in training, and every node of a graph in inference.

    Attributes:
        replayable: Whether two steps on the same batch run the same operations, so that a GPU can replay them as a CUDA
            graph (`cuda_graphs`).
        label_threshold: Of several labels, those with a higher probability are predicted; `None` means one half.
    """

    replayable = False
    label_threshold: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer(THRESHOLD, None)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Returns the outputs of the targets, [T, C]."""

    def loss(self, batch: Batch, task: Task) -> Tensor:
        """Returns the training loss of a batch: that of its outputs, weighted by node."""
        return weighted_loss(self(batch), batch.y, batch.weight, task)

    @abstractmethod
    def infer(self, graph: Graph) -> Tensor:
        """Returns the outputs of every node, [N, C], on the device of the graph; reads no history."""

    def select(self, graph: Graph, score: Callable[[Tensor], float]) -> Tensor:  # noqa: ARG002
        """Returns the outputs of every node after choosing what is chosen on validation, like the best epoch.

        Args:
            graph: As for `infer`.
            score: Returns what to choose by from the outputs of the validation nodes, [T, C]; higher is better.
        """
        return self.infer(graph)

    def embed(self, graph: Graph) -> Tensor:  # noqa: ARG002
        """Returns the values of every node that the last layer reads, [N, H], on the device of the graph."""
        raise ConfigError(f"a model of type {type(self).__name__} has no embeddings; {EMBEDDING_REMEDY}")

    @abstractmethod
    def layer_parameters(self) -> list[list[nn.Parameter]]:
        """Returns the weights layer by layer, from input to output."""

    def fill(self, batch: Batch) -> None:
        """Initializes the histories of the targets of a batch; does nothing for a model without histories."""

    def diagnose(self, graph: Graph) -> dict[str, float]:  # noqa: ARG002
        """Returns errors of the histories by name."""
        return {}

    @property
    def reads_labels(self) -> bool:
        """Returns whether `infer` reads the labels of training nodes."""
        return False

    @property
    def shares(self) -> dict[str, float]:
        """Returns the weights of the models that the outputs are an average of, by name; empty for a single model."""
        return {}

    def set_threshold(self, threshold: float | None) -> None:
        """Sets the threshold, which then is in the `state_dict`; `None` removes it."""
        # float64, so that it is the same number wherever it is read
        self.label_threshold = (
            None if threshold is None else torch.tensor(threshold, dtype=torch.float64, device=self.device)
        )

    def decide(self, task: Task) -> Task:
        """Returns a task with the threshold of this model."""
        return task if self.label_threshold is None else replace(task, threshold=float(self.label_threshold))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # weights that have a threshold fit a model that has none yet
        if (threshold := state_dict.get(f"{prefix}{THRESHOLD}")) is not None:
            self.set_threshold(float(threshold))
        super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def device(self) -> torch.device:
        """Returns the device of the weights."""
        return next(self.parameters()).device


def largest_error(found: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns the largest error of a stored solution among those of several models; empty if there is none."""
    errors = [errors["fixed_point_error"] for errors in found if "fixed_point_error" in errors]
    return {"fixed_point_error": max(errors)} if errors else {}


def weighted_loss(outputs: Tensor, y: Tensor, weight: Tensor, task: Task) -> Tensor:
    """Returns the sum of the weighted losses of some nodes, in float32 at least."""
    task.check(outputs)
    widened = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
    return (weight * task.loss(widened, y)).sum()
