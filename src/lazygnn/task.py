"""What is predicted: one label, several labels, or numbers; the loss, activation and metric that go with it."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

TaskKind = Literal["single-label", "multi-label", "regression"]
METRICS: dict[TaskKind, tuple[str, ...]] = {
    "single-label": ("accuracy",),
    "multi-label": ("micro-f1", "roc-auc"),
    "regression": ("r2",),
}


@dataclass(frozen=True)
class Task:
    """Loss, activation and metric of a node-level target with `num_outputs` columns."""

    kind: TaskKind
    num_outputs: int

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that fit; the first is the default. All of them grow as the model improves."""
        return METRICS[self.kind]

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Loss of every row, [T]; a row without a label must be weighted by zero."""
        if self.kind == "single-label":
            return F.cross_entropy(logits, y.clamp(min=0), reduction="none")
        # -1 and NaN mark rows without a label; their loss is weighted by zero, which NaN would survive
        target = torch.nan_to_num(y, nan=0.0).to(logits.dtype)
        if self.kind == "multi-label":
            return F.binary_cross_entropy_with_logits(logits, target.clamp(min=0), reduction="none").mean(dim=-1)
        return F.mse_loss(logits, target, reduction="none").mean(dim=-1)

    def activate(self, logits: Tensor) -> Tensor:
        """Probabilities, or the predicted numbers."""
        if self.kind == "single-label":
            return logits.softmax(dim=-1)
        return logits.sigmoid() if self.kind == "multi-label" else logits

    def labelled(self, y: Tensor) -> Tensor:
        """Which rows of `y` have a label, [N] bool."""
        if self.kind == "single-label":
            return y >= 0
        return (y >= 0).all(dim=-1) if self.kind == "multi-label" else ~y.isnan().any(dim=-1)
