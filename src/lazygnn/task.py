"""`Task`: one label, several labels or regression, each with its loss, activation and metrics.

`N` nodes of the graph, `T` targets of a batch, `C` outputs.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.errors import ConfigError

TaskKind = Literal["single-label", "multi-label", "regression"]
METRICS: dict[TaskKind, tuple[str, ...]] = {
    "single-label": ("accuracy", "balanced-accuracy", "micro-f1", "macro-f1", "roc-auc", "average-precision"),
    "multi-label": ("micro-f1", "macro-f1", "roc-auc", "average-precision"),
    "regression": ("r2", "mae", "rmse"),
}
# metrics in the units of the targets, where lower is better
ERRORS = ("mae", "rmse")


@dataclass(frozen=True)
class Task:
    """A node-level prediction task with `num_outputs` columns.

    Attributes:
        kind: One label, several labels or regression.
        num_outputs: Number of outputs.
        threshold: Of several labels, those with a higher probability are predicted.
    """

    kind: TaskKind
    num_outputs: int
    threshold: float = field(default=0.5, kw_only=True)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Returns the metrics of the task, the default first."""
        return METRICS[self.kind]

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """Returns the loss of every row, [T]; the caller weights rows without a label by zero."""
        if self.kind == "single-label":
            return F.cross_entropy(logits, y.clamp(min=0), reduction="none")
        # rows without a label hold -1 or NaN; a loss of NaN would remain NaN when weighted by zero
        target = torch.nan_to_num(y, nan=0.0).to(logits.dtype)
        if self.kind == "multi-label":
            return F.binary_cross_entropy_with_logits(logits, target.clamp(min=0), reduction="none").mean(dim=-1)
        return F.mse_loss(logits, target, reduction="none").mean(dim=-1)

    def check(self, outputs: Tensor, source: str = "the model") -> None:
        """Raises a `ConfigError` for outputs of another number of columns, naming their source."""
        if outputs.shape[1] != self.num_outputs:
            known = self.kind == "single-label" and outputs.shape[1] > self.num_outputs
            fewer = f", or make the graph with `num_classes={outputs.shape[1]}` if it lacks some" if known else ""
            raise ConfigError(
                f"{source} returns {outputs.shape[1]} columns, but the graph has {self.num_outputs} outputs; "
                f"give the last layer `graph.task.num_outputs` columns{fewer}"
            )

    def activate(self, logits: Tensor) -> Tensor:
        """Turns logits into probabilities, [N, C]; regression outputs stay as they are."""
        if self.kind == "single-label":
            return logits.softmax(dim=-1)
        return logits.sigmoid() if self.kind == "multi-label" else logits

    def predict_labels(self, logits: Tensor) -> Tensor:
        """Returns which of several labels are predicted, [T, C] bool: those with a probability above the threshold."""
        return logits > log_odds_of(self.threshold)

    def labeled(self, y: Tensor) -> Tensor:
        """Returns which rows of `y` have a label, [N] bool; a row with an unknown column has none."""
        unknown = self.unknown(y)
        return ~unknown if self.kind == "single-label" else ~unknown.any(dim=-1)

    def unknown(self, y: Tensor) -> Tensor:
        """Returns which entries of `y` are unknown, in the shape of `y`."""
        return y.isnan() if self.kind == "regression" else ~(y >= 0)


def log_odds_of(probability: float) -> float:
    """Returns the logit of a probability; exactly zero for one half."""
    return math.log(probability / (1 - probability))
