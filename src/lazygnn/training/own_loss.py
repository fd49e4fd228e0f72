"""A loss of the user's own in place of that of the task.

`T` targets of a batch, `C` outputs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lazygnn.errors import ConfigError, wrong_type
from lazygnn.task import Task

RowLoss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class OwnLossTask(Task):
    """A task with a loss of the user's own.

    Attributes:
        function: Returns the loss of every row, [T], from outputs [T, C] and targets. The targets of rows without a
            label are 0; these rows do not count.
    """

    function: RowLoss

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Returns the loss of every row, [T]."""
        target = torch.nan_to_num(y, nan=0.0) if y.is_floating_point() else y
        found: Any = self.function(logits, target if self.kind == "regression" else target.clamp(min=0))
        if not isinstance(found, Tensor):
            raise ConfigError(wrong_type("loss(outputs, y)", found, "return a tensor, the loss of every row"))
        if tuple(found.shape) != (len(logits),):
            raise ConfigError(
                f"`loss` returns shape {tuple(found.shape)} for {len(logits)} rows; return one number per row, such as "
                '`cross_entropy(outputs, y, reduction="none")`'
            )
        return found


def with_loss(task: Task, function: RowLoss) -> OwnLossTask:
    """Returns a task with another loss."""
    if not callable(function):
        raise ConfigError(wrong_type("loss", function, "give a function of outputs and targets"))
    return OwnLossTask(task.kind, task.num_outputs, function)
