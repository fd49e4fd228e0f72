"""The most confident mistakes of a model, with the ids of the nodes.

`T` nodes, `C` outputs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lazygnn.task import Task
from lazygnn.training.metrics import predict_class

NUM_MISTAKES = 20


def find_mistakes(
    outputs: Tensor, y: Tensor, task: Task, ids: np.ndarray, names: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns at most twenty mistakes, the most confident first: `node`, `target`, `prediction` and its probability.

    Of several labels, every wrong one is a mistake, and `label` names it. Of numbers, the largest errors come first.

    Args:
        outputs: Logits or numbers, [T, C].
        y: Targets.
        task: Defines what is predicted.
        ids: An id for every node, [T].
        names: A name for every output.
    """
    if task.kind == "single-label":
        return _of_classes(outputs, y, task, ids, names)
    return (_of_labels if task.kind == "multi-label" else _of_numbers)(outputs, y, task, ids, names)


def _of_classes(outputs: Tensor, y: Tensor, task: Task, ids: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    label = predict_class(outputs)
    probability = task.activate(outputs.double()).gather(-1, label[:, None])[:, 0]
    return [
        {
            "node": ids[row].item(),
            "target": names[int(y[row])],
            "prediction": names[int(label[row])],
            "probability": float(probability[row]),
        }
        for row in _largest(probability, label != y)
    ]


def _of_labels(outputs: Tensor, y: Tensor, task: Task, ids: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    predicted, probability = task.predict_labels(outputs), task.activate(outputs.double())
    wrong = predicted != (y > 0)
    sure = torch.where(predicted, probability, 1 - probability)
    found = []
    for index in _largest(sure.reshape(-1), wrong.reshape(-1)):
        row, column = divmod(index, len(names))
        has = bool(y[row, column] > 0)
        found.append(
            {
                "node": ids[row].item(),
                "label": names[column],
                "target": "has it" if has else "does not have it",
                "prediction": "does not have it" if has else "has it",
                "probability": float(sure[row, column]),
            }
        )
    return found


def _of_numbers(outputs: Tensor, y: Tensor, task: Task, ids: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    error = (outputs.double() - y.double()).abs()
    # columns of other units are compared in their deviations
    scaled = error / y.double().std(dim=0, correction=0).clamp(min=torch.finfo(torch.float64).tiny)
    found = []
    for index in _largest(scaled.reshape(-1), error.reshape(-1) > 0):
        row, column = divmod(index, task.num_outputs)
        numbers = {"target": float(y[row, column]), "prediction": float(outputs[row, column])}
        found.append({"node": ids[row].item(), "label": names[column], **numbers, "error": float(error[row, column])})
    return found


def _largest(values: Tensor, counted: Tensor) -> list[int]:
    """Returns where the largest of the counted values are, in descending order."""
    at = counted.nonzero()[:, 0]
    order = values[at].sort(descending=True, stable=True).indices[:NUM_MISTAKES]
    found: list[int] = at[order].tolist()
    return found
