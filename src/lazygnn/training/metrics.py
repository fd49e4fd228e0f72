"""Metrics: scores of outputs against targets, where higher is better."""

from collections.abc import Callable, Mapping

from torch import Tensor

from lazygnn.errors import ConfigError, GraphError
from lazygnn.task import Task

Metric = Callable[[Tensor, Tensor], float]


def find_metric(name: str, task: Task) -> tuple[str, Metric]:
    """Returns a metric and its name, for `auto` the first one of the task; refuses one that does not fit the task."""
    name = task.metrics[0] if name == "auto" else name
    if name not in task.metrics:
        raise ConfigError(
            f"metric `{name}` does not fit a {task.kind} task; choose one of: auto, {', '.join(task.metrics)}"
        )
    return name, _METRICS[name]


def score(metric: Metric, logits: Tensor, y: Tensor, masks: Mapping[str, Tensor]) -> dict[str, float]:
    """Returns the score on every split."""
    return {split: metric(logits[mask], y[mask]) for split, mask in masks.items()}


def _accuracy(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(dim=-1) == y).double().mean())


def _micro_f1(logits: Tensor, y: Tensor) -> float:
    from torchmetrics.functional.classification import binary_f1_score

    return float(binary_f1_score(logits.sigmoid().flatten(), y.long().flatten()))


def _roc_auc(logits: Tensor, y: Tensor) -> float:
    from torchmetrics.functional.classification import binary_auroc

    # the area is undefined for a label that all nodes of a split have, or none; such labels are left out
    columns = (y.amin(dim=0) != y.amax(dim=0)).nonzero()[:, 0].tolist()
    if not columns:
        raise GraphError("`roc-auc` needs a label that some nodes of a split have and some do not; use `micro-f1`")
    areas = [float(binary_auroc(logits[:, column].sigmoid(), y[:, column].long())) for column in columns]
    return sum(areas) / len(areas)


def _r2(logits: Tensor, y: Tensor) -> float:
    from torchmetrics.functional import r2_score

    if len(y) < 2:
        raise GraphError(f"`r2` needs at least two nodes in every split, got {len(y)}; add nodes or drop the split")
    return float(r2_score(logits, y))


_METRICS: dict[str, Metric] = {"accuracy": _accuracy, "micro-f1": _micro_f1, "roc-auc": _roc_auc, "r2": _r2}
