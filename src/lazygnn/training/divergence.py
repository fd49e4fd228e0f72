"""Tells from the loss of every epoch whether training diverges."""

import logging
import math
from collections.abc import Mapping
from typing import Any

from lazygnn.errors import DivergenceError

logger = logging.getLogger(__name__)

# epochs that must agree, since a single one may be off
_EPOCHS = 10
# times the first loss
_GROWN, _EXPLODED = 2.0, 1000.0
# a smaller first loss counts as this one: fine-tuning starts near zero
_FLOOR = 0.1
_REMEDY = "lower `lr` or set `clip_norm`"


class LossWatch:
    """Warns once of a loss that has grown, and ends a training whose loss has exploded or is not finite.

    Args:
        small_range: Whether histories are stored in float16, whose largest number is 65,504.
    """

    def __init__(self, *, small_range: bool = False) -> None:
        self.small_range = small_range
        self.first: float | None = None
        self.recent: list[float] = []
        self.warned = False

    def add(self, epoch: int, loss: float) -> None:
        """Judges the loss of one more epoch.

        Raises:
            DivergenceError: The loss is not finite, or has exploded.
        """
        if not math.isfinite(loss):
            further = "; if numbers are above 65,504, set `history_dtype=bfloat16`" if self.small_range else ""
            raise DivergenceError(f"the loss is {loss} in epoch {epoch}; {_REMEDY}{further}")
        self.first = loss if self.first is None else self.first
        self.recent = [*self.recent, loss][-_EPOCHS:]
        grown = min(self.recent) / max(self.first, _FLOOR) if len(self.recent) == _EPOCHS else 0.0
        said = f"the loss has grown from {self.first:.4g} in the first epoch to {loss:.4g} in epoch {epoch}; {_REMEDY}"
        if grown > _EXPLODED:
            raise DivergenceError(said)
        if grown > _GROWN and not self.warned:
            self.warned = True
            logger.warning(said)

    def state_dict(self) -> dict[str, Any]:
        """Returns what a checkpoint stores."""
        return {"first": self.first, "recent": self.recent, "warned": self.warned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint; an earlier one may have no state."""
        if state:
            self.first, self.recent, self.warned = state["first"], list(state["recent"]), state["warned"]
