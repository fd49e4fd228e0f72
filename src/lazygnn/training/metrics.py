"""Metrics: scores of outputs against targets; equal to those of scikit-learn.

Higher is better, except for the errors `mae` and `rmse`.

`T` nodes of a split, `C` outputs.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from lazygnn.errors import ConfigError, DivergenceError, GraphError
from lazygnn.task import ERRORS, Task, TaskKind
from lazygnn.training.ranking import average_precision, log_odds, roc_auc

Metric = Callable[[Tensor, Tensor], float]
Area = Callable[[Tensor, Tensor], float]
# metrics of several labels that depend on which of them are predicted, the default first
THRESHOLDED = ("micro-f1", "macro-f1")
# metrics that need nodes with different targets, or more than one node
_SOMETIMES_DEFINED = ("roc-auc", "average-precision", "r2")


def find_metric(name: str, task: Task) -> tuple[str, Metric]:
    """Returns a metric and its name, for `auto` the first one of the task; refuses one that does not fit the task."""
    name = task.metrics[0] if name == "auto" else name
    if name not in task.metrics:
        raise ConfigError(
            f"metric `{name}` does not fit a {task.kind} task; choose one of: auto, {', '.join(task.metrics)}"
        )
    metric = _METRICS[task.kind][name]
    return name, partial(metric, task=task) if name in THRESHOLDED and task.kind == "multi-label" else metric


def gain(name: str, score: float) -> float:
    """Returns a score such that higher is better: that of a metric, or the negative of an error."""
    return -score if name in ERRORS else score


def score(metric: Metric, logits: Tensor, y: Tensor, masks: Mapping[str, Tensor]) -> dict[str, float]:
    """Returns the score on every split; raises what `score_of_rows` does."""
    return {split: score_of_rows(metric, logits[mask], y[mask], split) for split, mask in masks.items()}


def score_of_rows(metric: Metric, outputs: Tensor, targets: Tensor, split: str) -> float:
    """Returns the score of the nodes of a split.

    Args:
        metric: The metric.
        outputs: Of these nodes, [T, C].
        targets: Of these nodes.
        split: The name of the split, for errors.

    Raises:
        DivergenceError: An output, or the score, is not finite.
        GraphError: The metric is not defined on these nodes.
    """
    _check_finite(outputs, split)
    try:
        found = metric(outputs, targets)
    except GraphError as error:
        raise GraphError(f"split `{split}` of size {len(targets)}: {error}") from None
    if not math.isfinite(found):
        raise DivergenceError(
            f"the score of split `{split}` is {found}: outputs are too large; lower `lr` or set `clip_norm`"
        )
    return found


def check_defined(name: str, task: Task, y: Tensor, masks: Mapping[str, Tensor]) -> None:
    """Refuses splits that a metric is not defined on, before any training."""
    if name in _SOMETIMES_DEFINED:
        _, metric = find_metric(name, task)
        score(metric, torch.zeros(1, task.num_outputs, device=y.device).expand(len(y), -1), y, masks)


def predict_class(logits: Tensor) -> Tensor:
    """Returns the class with the largest logit, [T]; of equal ones, the first."""
    return logits.argmax(dim=-1)


def _check_finite(logits: Tensor, split: str) -> None:
    # a sum over a value that is not finite is not finite either, and is much quicker than a look at each of them
    if math.isfinite(float(logits.sum())):
        return
    finite = logits.isfinite()
    if not bool(finite.all()):
        wrong = logits[~finite]
        raise DivergenceError(
            f"the outputs of split `{split}` hold {float(wrong[0])} ({len(wrong)} such values), which have no score; "
            "lower `lr` or set `clip_norm`"
        )


def _accuracy(logits: Tensor, y: Tensor) -> float:
    return float((predict_class(logits) == y).double().mean())


def _balanced_accuracy(logits: Tensor, y: Tensor) -> float:
    found = y[predict_class(logits) == y]
    right, wanted = (torch.bincount(classes, minlength=logits.shape[1]) for classes in (found, y))
    present = wanted > 0
    return float((right[present].double() / wanted[present]).mean())


def _macro_f1_of_classes(logits: Tensor, y: Tensor) -> float:
    predicted = predict_class(logits)
    right, found, wanted = (
        torch.bincount(classes, minlength=logits.shape[1]) for classes in (y[predicted == y], predicted, y)
    )
    present = found + wanted > 0
    return float(_f1(right, found, wanted)[present].mean())


def _macro_f1_of_labels(logits: Tensor, y: Tensor, task: Task) -> float:
    return float(f1_of_counts("macro-f1", *_label_counts(logits, y, task)))


def _micro_f1_of_labels(logits: Tensor, y: Tensor, task: Task) -> float:
    return float(f1_of_counts("micro-f1", *_label_counts(logits, y, task)))


def f1_of_counts(name: str, right: Tensor, found: Tensor, wanted: Tensor) -> Tensor:
    """Returns the F1 score from how many nodes have each label predicted correctly, predicted, and in the targets.

    Args:
        name: `micro-f1` or `macro-f1`.
        right: Counts, [..., C].
        found: Counts, [..., C].
        wanted: Counts, [..., C].
    """
    if name == "macro-f1":
        return _f1(right, found, wanted).mean(dim=-1)
    return _f1(right.sum(dim=-1), found.sum(dim=-1), wanted.sum(dim=-1))


def _label_counts(logits: Tensor, y: Tensor, task: Task) -> tuple[Tensor, Tensor, Tensor]:
    predicted, positive = task.predict_labels(logits), y > 0
    return (predicted & positive).sum(dim=0), predicted.sum(dim=0), positive.sum(dim=0)


def _f1(right: Tensor, found: Tensor, wanted: Tensor) -> Tensor:
    # zero for a label that is neither predicted nor in the targets
    return 2 * right.double() / (found + wanted).clamp(min=1)


def _mean_area_of_classes(name: str, area: Area, logits: Tensor, y: Tensor) -> float:
    classes = _distinguishing(torch.bincount(y, minlength=logits.shape[1]), len(y))
    # the first of two classes is the second one reversed
    classes = classes[1:] if logits.shape[1] == 2 else classes
    areas = [area(odds, y == column) for column, odds in zip(classes, log_odds(logits, classes), strict=True)]
    return _mean(areas, name, "class", "accuracy")


def _mean_area_of_labels(name: str, area: Area, logits: Tensor, y: Tensor) -> float:
    positive = y > 0
    labels = _distinguishing(positive.sum(dim=0), len(y))
    # logits, since probabilities near 0 and 1 round to ties
    areas = [area(logits[:, column], positive[:, column]) for column in labels]
    return _mean(areas, name, "label", "micro-f1")


def _distinguishing(counts: Tensor, num_nodes: int) -> list[int]:
    """Returns the classes or labels that some nodes have and some do not."""
    found: list[int] = ((counts > 0) & (counts < num_nodes)).nonzero()[:, 0].tolist()
    return found


def _mean(areas: list[float], name: str, kind: str, other: str) -> float:
    if not areas:
        raise GraphError(
            f"`{name}` needs a {kind} that some nodes have and some do not; add nodes to the split or use `{other}`"
        )
    return statistics.fmean(areas)


def _r2(logits: Tensor, y: Tensor) -> float:
    if len(y) < 2:
        raise GraphError("`r2` needs at least two nodes; add nodes or drop the split")
    y = y.double()
    residual = (y - logits.double()).square().sum(dim=0)
    # relative to the first node, equal targets are exactly zero, and large ones lose no digits in their mean
    centered = y - y[:1]
    total = (centered - centered.mean(dim=0)).square().sum(dim=0)
    # equal targets have no variance to explain: 1 if all are met, or else 0
    explained = torch.where(total > 0, 1 - residual / total, (residual == 0).double())
    return float(explained.mean())


def _mae(outputs: Tensor, y: Tensor) -> float:
    return float((outputs.double() - y.double()).abs().mean())


def _rmse(outputs: Tensor, y: Tensor) -> float:
    # a mean over columns of their own roots
    return float((outputs.double() - y.double()).square().mean(dim=0).sqrt().mean())


_METRICS: dict[TaskKind, dict[str, Callable[..., float]]] = {
    "single-label": {
        "accuracy": _accuracy,
        "balanced-accuracy": _balanced_accuracy,
        # every wrong prediction is a false positive of one class and a false negative of another
        "micro-f1": _accuracy,
        "macro-f1": _macro_f1_of_classes,
        "roc-auc": partial(_mean_area_of_classes, "roc-auc", roc_auc),
        "average-precision": partial(_mean_area_of_classes, "average-precision", average_precision),
    },
    "multi-label": {
        "micro-f1": _micro_f1_of_labels,
        "macro-f1": _macro_f1_of_labels,
        "roc-auc": partial(_mean_area_of_labels, "roc-auc", roc_auc),
        "average-precision": partial(_mean_area_of_labels, "average-precision", average_precision),
    },
    "regression": {"r2": _r2, "mae": _mae, "rmse": _rmse},
}
