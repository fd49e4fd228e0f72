"""Batches of training nodes: rows without a graph (SGC, SIGN), and what samplers of neighbours share.

`T` nodes of a batch, its targets; `N` nodes of the graph.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from lazygnn.batch import Batch, loss_weight
from lazygnn.graph import Graph
from lazygnn.ops import Csr

# an odd multiplier, so that epochs and positions of one seed do not meet those of another
_STRIDE = 1_000_003


class NodeLoader(ABC):
    """Deals the training nodes out to batches, shuffled every epoch; a subclass makes a batch of its nodes.

    Order and batches follow from seed, epoch and position alone, so that a loader can go on anywhere.

    Args:
        graph: What the batches are taken from.
        batch_size: Training nodes of a batch; `None` takes all of them, in node order.
        seed: Seed of the order and of what a subclass draws.
    """

    def __init__(self, graph: Graph, batch_size: int | None = None, *, seed: int = 0) -> None:
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"`batch_size` must be at least 1, got {batch_size}")
        self.graph, self.seed = graph, seed
        self.batch_size = min(batch_size or graph.num_train, graph.num_train)
        self.epoch, self.position = 0, 0
        self._train = graph.masks["train"].nonzero()[:, 0]
        self._weight = loss_weight(graph, len(self))
        self._made: tuple[tuple[int, ...], Batch] | None = None

    @abstractmethod
    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:
        """The batch of some nodes; all that is random in it is drawn from the generator."""

    def __len__(self) -> int:
        return -(-self.graph.num_train // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        while (batch := self.upcoming()) is not None:
            self.position += 1
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def upcoming(self) -> Batch | None:
        """The batch that comes next, made once; `None` after the last one of an epoch."""
        if self.position >= len(self):
            return None
        at = (self.seed, self.epoch, self.position)
        if self._made is None or self._made[0] != at:
            targets = self._order().split(self.batch_size)[self.position]
            self._made = at, self.make(targets, self._generator(1 + self.position))
        return self._made[1]

    def sweep(self) -> Iterator[Batch]:
        """Every node of the graph once, in node order; the course of the epochs is not touched."""
        nodes = torch.arange(self.graph.num_nodes, device=self.graph.device)
        for position, targets in enumerate(nodes.split(self.batch_size)):
            yield self.make(targets, self._generator(-1 - position))

    def state_dict(self) -> dict[str, int]:
        """Where the loader stands: the batches left follow from it."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on from where another loader of the same graph stood."""
        self.seed, self.epoch, self.position = state["seed"], state["epoch"], state["position"]

    def _order(self) -> Tensor:
        if len(self) == 1:
            return self._train
        order = torch.randperm(len(self._train), generator=self._generator(0, "cpu"))
        return self._train[order.to(self._train.device)]

    def _generator(self, position: int, device: torch.device | str | None = None) -> torch.Generator:
        seed = (self.seed * _STRIDE + self.epoch) * _STRIDE + position
        return torch.Generator(self.graph.device if device is None else device).manual_seed(seed % 2**63)


class RowLoader(NodeLoader):
    """Batches of feature rows and no edges, for models whose features are propagated beforehand."""

    def make(self, targets: Tensor, generator: torch.Generator) -> Batch:  # noqa: ARG002
        """The rows of some nodes."""
        return Batch(
            x=select_rows(self.graph.x, targets),
            y=self.graph.y[targets],
            weight=self._weight[targets],
            nodes=targets,
            num_targets=len(targets),
            adjs=[],
        )


def select_rows(x: Tensor | Csr, rows: Tensor) -> Tensor | Csr:
    """Rows of dense or sparse features."""
    return x.select(rows) if isinstance(x, Csr) else x[rows]
