"""`SampledLoader`: batches that are drawn at random, the base of all samplers."""

from abc import abstractmethod

import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph, check_graph
from lazygnn.loader.base import STRIDE, EpochLoader


class SampledLoader(EpochLoader):
    """Draws each batch from a generator of its own, so that it follows from seed, epoch and position.

    Args:
        graph: The graph that batches are drawn from, on its own device.
        seed: Seed of everything random.
    """

    def __init__(self, graph: Graph, *, seed: int = 0) -> None:
        super().__init__(seed)
        check_graph(graph)
        self.graph = graph
        self._made: tuple[tuple[int, ...], Batch] | None = None

    @abstractmethod
    def draw(self, position: int, generator: torch.Generator) -> Batch:
        """Draws the batch at a position of the current epoch, from the generator alone."""

    def upcoming(self) -> Batch | None:
        """Returns the batch at the current position, made once; `None` after the last one of an epoch."""
        if self.position >= len(self):
            return None
        key = (self.seed, self.epoch, self.position)
        if self._made is None or self._made[0] != key:
            self._made = key, self.draw(self.position, self._generator(1 + self.position))
        return self._made[1]

    def _generator(
        self, position: int, *, epoch: int | None = None, device: torch.device | str | None = None
    ) -> torch.Generator:
        seed = (self.seed * STRIDE + (self.epoch if epoch is None else epoch)) * STRIDE + position
        return torch.Generator(self.graph.device if device is None else device).manual_seed(seed % 2**63)
