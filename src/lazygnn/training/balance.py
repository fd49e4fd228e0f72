"""Class weights: a loss in which rare classes count as much as frequent ones.

`T` targets of a batch, `C` outputs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph, training_targets
from lazygnn.task import Task


@dataclass(frozen=True, eq=False)
class BalancedTask(Task):
    """A task whose loss weighs classes, or the presence and the absence of labels.

    Attributes:
        present: Weight of every class, or of nodes that have a label, [C].
        absent: Weight of nodes that do not have a label, [C]; for single labels it is not used.
    """

    present: Tensor
    absent: Tensor

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Returns the weighted loss of every row, [T]."""
        if self.kind == "single-label":
            return super().loss(logits, y) * self.present.to(logits.dtype)[y.clamp(min=0)]
        target = y.to(logits.dtype).clamp(min=0)
        weight = torch.where(target > 0, self.present, self.absent).to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, target, weight, reduction="none").mean(dim=-1)


def balanced(graph: Graph, device: torch.device) -> BalancedTask:
    """Returns the task of a graph with weights inverse to the frequencies among its training nodes.

    They are those of scikit-learn, and their mean over the training nodes is 1. A label counts as two classes: nodes
    that have it, and nodes that do not. A class without training nodes does not count.

    Args:
        graph: Its training nodes have labels.
        device: Of the weights.
    """
    task = graph.task
    if task.kind == "regression":
        raise ConfigError("`class_weight` is `balanced`, but a regression has no classes; remove `class_weight`")
    targets = training_targets(graph)
    count = targets.sum(dim=0).double().to(device)
    if task.kind == "single-label":
        present = _inverse(count, len(targets), num_classes=int((count > 0).sum()))
        return BalancedTask(task.kind, task.num_outputs, present, present)
    rest = len(targets) - count
    # a label that all nodes have, or none, has a single class
    classes = (count > 0).long() + (rest > 0)
    weights = (_inverse(part, len(targets), num_classes=classes) for part in (count, rest))
    return BalancedTask(task.kind, task.num_outputs, *weights)


def _inverse(count: Tensor, total: int, *, num_classes: int | Tensor) -> Tensor:
    return torch.where(count > 0, total / (num_classes * count.clamp(min=1)), 0.0).float()
