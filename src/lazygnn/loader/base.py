"""The base of all loaders: the loop over an epoch and the state to resume from."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from lazygnn.batch import Batch

# separates the random numbers of different seeds, epochs and positions
STRIDE = 1_000_003


class EpochLoader(ABC):
    """Returns batches epoch by epoch, and can be resumed at any of them.

    The batches of an epoch follow from seed, epoch and position alone, so these three are the state.

    Args:
        seed: Seed of everything random.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed, self.epoch, self.position = seed, 0, 0

    @abstractmethod
    def __len__(self) -> int:
        """Returns the number of batches per epoch."""

    @abstractmethod
    def upcoming(self) -> Batch | None:
        """Returns the batch at the current position; `None` after the last one of an epoch."""

    @abstractmethod
    def sweep(self) -> Iterator[Batch]:
        """Yields batches that hold every node once as a target; leaves epoch and position unchanged."""

    def __iter__(self) -> Iterator[Batch]:
        """Yields the batches that are left of the current epoch."""
        while (batch := self.upcoming()) is not None:
            self._advance()
            yield batch
        self.epoch, self.position = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """Returns seed, epoch and position."""
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resumes from the state of a loader with the same options."""
        # the first checkpoints held no seed for a full batch
        self.seed = state.get("seed", self.seed)
        self.epoch, self.position = state["epoch"], state["position"]

    def _shuffled(self, count: int) -> Tensor:
        """Returns the numbers below `count` in the random order of the current epoch."""
        generator = torch.Generator().manual_seed((self.seed * STRIDE + self.epoch) % 2**63)
        return torch.randperm(count, generator=generator)

    def _advance(self) -> None:
        self.position += 1
