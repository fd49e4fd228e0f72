"""The warm start of our default: the stored solution moves with its input. It is not in the paper."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from lazygnn.history.warmstart import Blend, WarmStart, check_beta


@dataclass(frozen=True)
class Drift(WarmStart):
    """`stored + (fresh - previous)`, then mixed with the fresh value by `beta`.

    Nothing that was propagated fades as the input changes, and the remaining error is in the modes that a step damps
    fastest. The stored input of a halo row belongs to another pass, so the halo is mixed only.
    """

    beta: float = 0.0
    stores_inputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_beta(self.beta)

    def blend(self, weight: float = 1.0) -> Blend:
        """Moves the stored rows by the change of their input so that the change enters with this weight."""
        if self.beta < 1:
            return Blend(self.beta, move=(weight - self.beta) / (1 - self.beta))
        if weight != 1:
            raise ValueError(f"{self} ignores its history, so the weight of a change must be 1, got {weight}")
        return Blend(self.beta)

    def targets(self, fresh: Tensor, stored: Tensor, previous: Tensor | None, weight: float = 1.0) -> Tensor:
        """Returns `(1 - beta) (stored + move (fresh - previous)) + beta fresh`."""
        if previous is None:
            raise ValueError(f"{self} needs the inputs of the last visit; open its history with `start={self}`")
        moved = torch.add(stored, fresh - previous, alpha=self.blend(weight).move)
        return torch.lerp(moved, fresh, self.beta)
