"""The whole graph as the only batch of an epoch."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph


class FullLoader:
    """Gives the same batch every epoch, to a training whose loss is the same in every step.

    Args:
        graph: The whole of the batch.
        num_layers: Steps of a pass.
        label_step: Whether a pass takes one step more on the training nodes.
        edges: Where all of the batch but its features is placed; where the graph is by default.
    """

    def __init__(
        self, graph: Graph, num_layers: int, *, label_step: bool = False, edges: torch.device | None = None
    ) -> None:
        batch = Batch.full(graph, num_layers, label_step=label_step)
        if batch.labelled is not None:
            batch = replace(batch, labelled=replace(batch.labelled, same_loss=True))
        self.batch = batch if edges is None else batch.rest_to(edges)
        self.epoch, self.position = 0, 0

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Batch]:
        if self.position == 0:
            self.position = 1
            yield self.batch
        self.epoch, self.position = self.epoch + 1, 0

    def upcoming(self) -> Batch | None:
        """Nothing comes after the only batch."""
        return None

    def sweep(self) -> Iterator[Batch]:
        """The batch, outside the course of the epochs."""
        yield self.batch

    def state_dict(self) -> dict[str, int]:
        """Where the loader stands."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on from there."""
        self.epoch, self.position = state["epoch"], state["position"]
