"""Where a lazy pass starts: from what is stored for a node, corrected by what is known now.

`Mix` is the paper's momentum, Eqs. (6) and (13); `Drift` is ours. Both serve features and gradients alike.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Blend(NamedTuple):
    """A warm start in numbers: `scale lerp(stored + move (fresh - fresh_then), fresh, mix)` for a target.

    A row of the halo is `lerp(stored, fresh, mix)`.
    """

    mix: float
    move: float = 0.0
    scale: float = 1.0


class WarmStart(ABC):
    """Combines stored and fresh rows into the value a pass starts from."""

    @property
    @abstractmethod
    def keeps_inputs(self) -> bool:
        """Whether the fresh value of the last visit must be stored too."""

    @abstractmethod
    def blend(self, change: float = 1.0) -> Blend:
        """The numbers; `change` is the weight of what is new in the fresh value."""

    def targets(self, fresh: Tensor, stored: Tensor, fresh_then: Tensor | None, change: float = 1.0) -> Tensor:
        """Start value of rows this batch is about; `fresh_then` is their fresh value at the last visit."""
        mix, move, scale = self.blend(change)
        if self.keeps_inputs:
            if fresh_then is None:
                raise ValueError(f"{self} needs the inputs of the last visit; open its history with `start={self}`")
            stored = torch.add(stored, fresh - fresh_then, alpha=move)
        mixed = torch.lerp(stored, fresh, mix)
        return mixed if scale == 1 else scale * mixed

    def halo(self, fresh: Tensor, stored: Tensor) -> Tensor:
        """Start value of rows that are only here to be propagated from."""
        return torch.lerp(stored, fresh, self.blend().mix)


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

    def blend(self, change: float = 1.0) -> Blend:
        """With a weight of 1 all of the fresh value is new; with another there is no telling what is."""
        if change != 1 and self.weight < 1:
            raise ValueError(f"{self} keeps no inputs, so a change of them has no weight of its own, got {change}")
        return Blend(self.weight, scale=change)


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

    def blend(self, change: float = 1.0) -> Blend:
        """Moves the stored rows by what their input has changed, so that the change enters with this very weight."""
        if self.mix < 1:
            return Blend(self.mix, move=(change - self.mix) / (1 - self.mix))
        if change != 1:
            raise ValueError(f"{self} forgets its history, so a change has no weight of its own, got {change}")
        return Blend(self.mix)


def _check_weight(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"`{name}` must lie in [0, 1], got {value}")
