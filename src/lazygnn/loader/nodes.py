"""`NodeLoader`: batches of training nodes, the base of row loaders and samplers.

`T` targets of a batch, `V` nodes of a batch, `N` nodes of the graph.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from lazygnn.batch import Batch, loss_weight
from lazygnn.graph import Graph, select_rows
from lazygnn.loader.base import EpochLoader
from lazygnn.ops import Adjacency

# separates the random numbers of different seeds, epochs and positions
_STRIDE = 1_000_003


class NodeLoader(EpochLoader):
    """Splits the training nodes into batches, shuffled every epoch; a subclass makes a batch from its targets.

    Args:
        graph: The graph that batches are taken from.
        batch_size: Training nodes per batch; `None` takes all of them, in node order.
        seed: Seed of the order and of the random numbers of a subclass.
    """

    def __init__(self, graph: Graph, batch_size: int | None = None, *, seed: int = 0) -> None:
        super().__init__(seed)
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}")
        self.graph = graph
        self.batch_size = min(batch_size or graph.num_train, graph.num_train)
        self._train = graph.masks["train"].nonzero()[:, 0]
        self._weight = loss_weight(graph, len(self))
        self._made: tuple[tuple[int, ...], Batch] | None = None

    @abstractmethod
    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:
        """Makes the batch of some targets; draws from the generator alone."""

    def __len__(self) -> int:
        return -(-self.graph.num_train // self.batch_size)

    def upcoming(self) -> Batch | None:
        """Returns the batch at the current position, made once; `None` after the last one of an epoch."""
        if self.position >= len(self):
            return None
        key = (self.seed, self.epoch, self.position)
        if self._made is None or self._made[0] != key:
            targets = self._order().split(self.batch_size)[self.position]
            self._made = key, self.make(targets, self._generator(1 + self.position))
        return self._made[1]

    def sweep(self) -> Iterator[Batch]:
        """Yields batches of all nodes in node order; leaves epoch and position unchanged."""
        nodes = torch.arange(self.graph.num_nodes, device=self.graph.device)
        for position, targets in enumerate(nodes.split(self.batch_size)):
            yield self.make(targets, self._generator(-1 - position))

    def _batch(self, nodes: Tensor, num_targets: int, adjs: Sequence[Adjacency]) -> Batch:
        """Builds a batch with the features of all its nodes, [V]; the targets come first."""
        targets = nodes[:num_targets]
        return Batch(
            x=select_rows(self.graph.x, nodes),
            y=self.graph.y[targets],
            weight=self._weight[targets],
            nodes=nodes,
            num_targets=num_targets,
            adjs=adjs,
        )

    def _order(self) -> Tensor:
        if len(self) == 1:
            return self._train
        order = torch.randperm(len(self._train), generator=self._generator(0, "cpu"))
        return self._train[order.to(self._train.device)]

    def _generator(self, position: int, device: torch.device | str | None = None) -> torch.Generator:
        seed = (self.seed * _STRIDE + self.epoch) * _STRIDE + position
        return torch.Generator(self.graph.device if device is None else device).manual_seed(seed % 2**63)
