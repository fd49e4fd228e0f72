"""`NodeLoader`: batches of some nodes, the base of row loaders and samplers.

`T` targets of a batch, `V` nodes of a batch, `N` nodes of the graph.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from lazygnn.batch import Batch, loss_weight
from lazygnn.graph import Graph, select_rows
from lazygnn.loader.sampled import SampledLoader
from lazygnn.ops import Adjacency


class NodeLoader(SampledLoader):
    """Splits nodes into batches, shuffled every epoch; a subclass makes a batch from the nodes of a split.

    Args:
        graph: The graph that batches are taken from.
        batch_size: Nodes per batch; `None` takes all of them, in node order.
        every_node: Whether to split all nodes instead of the training nodes.
        seed: Seed of the order and of the random numbers of a subclass.
    """

    def __init__(self, graph: Graph, batch_size: int | None = None, *, every_node: bool = False, seed: int = 0) -> None:
        super().__init__(graph, seed=seed)
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}")
        everyone = torch.arange(graph.num_nodes, device=graph.device)
        self._split = everyone if every_node else everyone[graph.masks["train"]]
        self.batch_size = min(batch_size or len(self._split), len(self._split))
        self._weight = loss_weight(graph, len(self))

    @abstractmethod
    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:
        """Makes the batch of some targets; draws from the generator alone."""

    def __len__(self) -> int:
        return -(-len(self._split) // self.batch_size)

    def draw(self, position: int, generator: torch.Generator) -> Batch:
        """Makes the batch of the next targets in the order of the epoch."""
        return self.make(self._order().split(self.batch_size)[position], generator)

    def sweep(self) -> Iterator[Batch]:
        """Yields batches of all nodes in node order; leaves epoch and position unchanged."""
        nodes = torch.arange(self.graph.num_nodes, device=self.graph.device)
        for position, targets in enumerate(nodes.split(self.batch_size)):
            yield self.make(targets, self._generator(-1 - position))

    def _batch(
        self, nodes: Tensor, num_targets: int, adjs: Sequence[Adjacency], *, inputs: Tensor | None = None
    ) -> Batch:
        """Builds a batch with the features of `inputs`, by default of all its nodes, [V]; the targets come first."""
        targets = nodes[:num_targets]
        return Batch(
            x=select_rows(self.graph.x, nodes if inputs is None else inputs),
            y=self.graph.y[targets],
            weight=self._weight[targets],
            nodes=nodes,
            num_targets=num_targets,
            adjs=adjs,
        )

    def _order(self) -> Tensor:
        if len(self) == 1:
            return self._split
        order = torch.randperm(len(self._split), generator=self._generator(0, device="cpu"))
        return self._split[order.to(self._split.device)]
