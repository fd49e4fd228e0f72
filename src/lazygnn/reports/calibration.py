"""Calibration: whether nodes that a model is 80 % sure of are right 80 % of the time, and the temperature that helps.

`T` nodes, `C` outputs.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lazygnn.task import Task
from lazygnn.training.metrics import predict_class

NUM_BINS = 10
# temperatures are searched between these
_COLDEST, _HOTTEST = 0.05, 20.0
_STEPS = 60
# from there on, in logarithms, a search has ended at its bound
_AT_BOUND = 1e-6


def calibration(logits: Tensor, y: Tensor, task: Task) -> dict[str, Any]:
    """Returns the expected calibration error, the log loss and the bins of a reliability plot.

    One label: the probability of the predicted class, and whether it is right. Several labels: the probability of every
    label of every node, and whether the node has it. The error is the mean, over nodes or labels, of the difference
    between probability and share in their bin (Guo et al., ICML 2017).

    Args:
        logits: Outputs, [T, C].
        y: Targets.
        task: Of classes or labels.
    """
    probability, right = _confidence(logits.double(), y, task)
    at = (probability * NUM_BINS).long().clamp(max=NUM_BINS - 1)
    count, expected, found = (
        torch.zeros(NUM_BINS, dtype=torch.float64).index_add_(0, at, values)
        for values in (torch.ones_like(probability), probability, right)
    )
    bins = [
        {
            "low": index / NUM_BINS,
            "high": (index + 1) / NUM_BINS,
            "count": int(count[index]),
            "probability": float(expected[index] / count[index]) if count[index] else None,
            "share": float(found[index] / count[index]) if count[index] else None,
        }
        for index in range(NUM_BINS)
    ]
    error = float((expected - found).abs().sum() / count.sum())
    return {"error": error, "log_loss": _log_loss(logits.double(), y, task), "bins": bins}


def fit_temperature(logits: Tensor, y: Tensor, task: Task) -> float | None:
    """Returns the temperature that logits are divided by for the lowest log loss; above 1, a model was too sure.

    Returns None where none is lowest: if all nodes are predicted right, a lower one is always better.

    Args:
        logits: Outputs of the validation nodes, [T, C].
        y: Their targets.
        task: Of classes or labels.
    """
    logits, coldest = logits.double(), math.log(_COLDEST)
    found = _lowest(lambda log: _log_loss(logits / math.exp(log), y, task), coldest, math.log(_HOTTEST))
    return None if math.isclose(found, coldest, abs_tol=_AT_BOUND) else math.exp(found)


def _confidence(logits: Tensor, y: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    probability = task.activate(logits)
    if task.kind == "multi-label":
        return probability.reshape(-1), (y > 0).double().reshape(-1)
    label = predict_class(logits)
    return probability.gather(-1, label[:, None])[:, 0], (label == y).double()


def _log_loss(logits: Tensor, y: Tensor, task: Task) -> float:
    if task.kind == "multi-label":
        return float(F.binary_cross_entropy_with_logits(logits, y.to(logits.dtype)))
    return float(F.cross_entropy(logits, y))


def _lowest(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns where a function with one valley is lowest, by golden sections."""
    golden = (math.sqrt(5) - 1) / 2
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - golden * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + golden * (high - low)
            at_right = function(right)
    return (low + high) / 2
