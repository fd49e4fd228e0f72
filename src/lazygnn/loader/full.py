"""`FullLoader`: the whole graph as the only batch of an epoch."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader.base import EpochLoader


class FullLoader(EpochLoader):
    """Returns the same batch every epoch, for training with the same loss in every step.

    Args:
        graph: The graph; all its nodes are targets of the batch.
        num_layers: Steps per pass.
        label_step: Whether a pass takes one more step on the training nodes.
        edges: Device of the whole batch except its features; that of the graph by default.
    """

    def __init__(
        self, graph: Graph, num_layers: int, *, label_step: bool = False, edges: torch.device | None = None
    ) -> None:
        super().__init__()
        batch = Batch.full(graph, num_layers, label_step=label_step)
        if batch.labeled is not None:
            batch = replace(batch, labeled=replace(batch.labeled, same_loss=True))
        self.batch = batch if edges is None else batch.rest_to(edges)

    def __len__(self) -> int:
        return 1

    def upcoming(self) -> Batch | None:
        """Returns the batch; `None` after the first step of an epoch."""
        return self.batch if self.position == 0 else None

    def sweep(self) -> Iterator[Batch]:
        """Yields the batch; leaves epoch and position unchanged."""
        yield self.batch
