"""Precision, recall, F1 and support of every class, and the confusion matrix; equal to those of scikit-learn.

`T` nodes, `C` classes or labels.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def class_table(predicted: Tensor, y: Tensor, names: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a row for every class: `name`, `precision`, `recall`, `f1`, `support` and `predicted`.

    A ratio whose denominator is zero is None: the precision of a class that is never predicted, the recall of one that
    no node has, the F1 of one that is neither.

    Args:
        predicted: Classes, [T], or which labels are predicted, [T, C] bool.
        y: Targets of the same shape.
        names: A name for every class.
    """
    if predicted.dim() == 1:
        predicted, y = (torch.nn.functional.one_hot(classes, len(names)) for classes in (predicted, y))
    found, wanted = predicted > 0, y > 0
    counts = ((found & wanted).sum(dim=0), found.sum(dim=0), wanted.sum(dim=0))
    rows = []
    for name, right, predictions, support in zip(names, *(count.tolist() for count in counts), strict=True):
        ratios = {
            "precision": _ratio(right, predictions),
            "recall": _ratio(right, support),
            "f1": _ratio(2 * right, predictions + support),
        }
        rows.append({"name": name, **ratios, "support": support, "predicted": predictions})
    return rows


def confusion_matrix(predicted: Tensor, y: Tensor, num_classes: int) -> list[list[int]]:
    """Returns how many nodes of each class (rows) are predicted to have each class (columns), [C, C]."""
    pairs = torch.bincount(y * num_classes + predicted, minlength=num_classes**2)
    matrix: list[list[int]] = pairs.view(num_classes, num_classes).tolist()
    return matrix


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
