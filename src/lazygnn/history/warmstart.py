"""The interface of a warm start: how a pass starts from stored and fresh rows.

`Mix`, the paper's, is in propagation/passes.py beside the equations. `Drift`, ours, is in propagation/drift.py.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor


class Blend(NamedTuple):
    """A warm start in numbers: `scale lerp(stored + move (fresh - previous), fresh, beta)` for a target.

    A row of the halo is `lerp(stored, fresh, beta)`.
    """

    beta: float
    move: float = 0.0
    scale: float = 1.0


class WarmStart(ABC):
    """Combines stored and fresh rows into the value that a pass starts from; serves features and gradients alike.

    Attributes:
        beta: Weight of the fresh value, in [0, 1]; for gradients, the gamma of the paper.
        stores_inputs: Whether the fresh value of the last visit must be stored too.
    """

    beta: float
    stores_inputs: ClassVar[bool]

    @abstractmethod
    def blend(self, weight: float = 1.0) -> Blend:
        """Returns the numbers; `weight` is the weight of the change of the fresh value since the last visit."""

    @abstractmethod
    def targets(self, fresh: Tensor, stored: Tensor, previous: Tensor | None, weight: float = 1.0) -> Tensor:
        """Returns the start value of targets; `previous` is their fresh value at the last visit."""

    def halo(self, fresh: Tensor, stored: Tensor) -> Tensor:
        """Returns the start value of halo rows that have a fresh value."""
        return torch.lerp(stored, fresh, self.beta)


def check_beta(beta: float, name: str = "beta") -> None:
    """Refuses a weight outside of [0, 1]."""
    if not 0 <= beta <= 1:
        raise ValueError(f"`{name}` must be in [0, 1], got {beta}")
