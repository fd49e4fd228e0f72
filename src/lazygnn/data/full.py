"""The whole graph as the only batch of an epoch."""

from collections.abc import Iterator

from lazygnn.batch import Batch
from lazygnn.graph import Graph


class FullLoader:
    """Gives the same batch every epoch."""

    def __init__(self, graph: Graph, num_layers: int) -> None:
        self.batch = Batch.full(graph, num_layers)

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Batch]:
        yield self.batch
