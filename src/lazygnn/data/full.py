"""The whole graph as the only batch of an epoch."""

from collections.abc import Iterator
from functools import cached_property

from lazygnn.batch import Batch
from lazygnn.graph import Graph


class FullLoader:
    """Gives the same batch every epoch."""

    def __init__(self, graph: Graph, num_layers: int) -> None:
        self.graph = graph
        self.num_layers = num_layers

    @cached_property
    def batch(self) -> Batch:
        """The batch, made on first use: a model that only predicts needs none, nor a training node."""
        return Batch.full(self.graph, self.num_layers)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Batch]:
        yield self.batch
