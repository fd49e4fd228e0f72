"""Where a lazy pass starts: from what is stored for a node, corrected by what is known now.

`Mix` is the paper's momentum, Eqs. (6) and (13); `Drift` is ours. Both serve features and gradients alike.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor


class WarmStart(ABC):
    """Combines stored and fresh rows into the value a pass starts from."""

    @property
    @abstractmethod
    def keeps_inputs(self) -> bool:
        """Whether the fresh value of the last visit must be stored too."""

    @abstractmethod
    def targets(self, fresh: Tensor, stored: Tensor, fresh_then: Tensor | None, change: float = 1.0) -> Tensor:
        """Start value of rows this batch is about; `fresh_then` is their fresh value at the last visit.

        `change` is the weight of the difference of the two, for a warm start that looks at it.
        """

    @abstractmethod
    def halo(self, fresh: Tensor, stored: Tensor) -> Tensor:
        """Start value of rows that are only here to be propagated from."""


@dataclass(frozen=True)
class Mix(WarmStart):
    """`(1 - weight) stored + weight fresh`, Eqs. (6) and (13).

    A weight of 1 forgets the history; a weight of 0 trusts it blindly. Every pass fades what earlier ones
    propagated by `1 - weight`, so the mix shortens the reach.
    """

    weight: float

    def __post_init__(self) -> None:
        _check_weight("weight", self.weight)

    @property
    def keeps_inputs(self) -> bool:
        """The mix needs no more than the stored rows."""
        return False

    def targets(
        self,
        fresh: Tensor,
        stored: Tensor,
        fresh_then: Tensor | None,  # noqa: ARG002
        change: float = 1.0,
    ) -> Tensor:
        """The mix; with a weight of 1 all of `fresh` is new, with another there is no telling what is."""
        mixed = torch.lerp(stored, fresh, self.weight)
        if change == 1:
            return mixed
        if self.weight < 1:
            raise ValueError(f"{self} keeps no inputs, so a change of them has no weight of its own, got {change}")
        return change * mixed

    def halo(self, fresh: Tensor, stored: Tensor) -> Tensor:
        """The mix again."""
        return torch.lerp(stored, fresh, self.weight)


@dataclass(frozen=True)
class Drift(WarmStart):
    """`stored + (fresh - fresh_then)`, then mixed with the fresh value by `mix`.

    The stored solution moves along with its input, so nothing that was propagated fades, and the error left lies in
    the modes that a step damps fastest. A halo row's stored input belongs to another pass; it is mixed only.
    """

    mix: float = 0.0

    def __post_init__(self) -> None:
        _check_weight("mix", self.mix)

    @property
    def keeps_inputs(self) -> bool:
        """The drift is a difference, so the last input is kept."""
        return True

    def targets(self, fresh: Tensor, stored: Tensor, fresh_then: Tensor | None, change: float = 1.0) -> Tensor:
        """Moves the stored rows by what their input has changed."""
        if fresh_then is None:
            raise ValueError("`Drift` needs the inputs of the last visit; open its history with `start=Drift(...)`")
        return torch.lerp(torch.add(stored, fresh - fresh_then, alpha=change), fresh, self.mix)

    def halo(self, fresh: Tensor, stored: Tensor) -> Tensor:
        """The mix alone."""
        return torch.lerp(stored, fresh, self.mix)


def _check_weight(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"`{name}` must lie in [0, 1], got {value}")
