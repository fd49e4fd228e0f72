"""Tells from the log of a run whether it ended too early."""

from collections.abc import Mapping, Sequence
from typing import Any

from lazygnn.task import ERRORS
from lazygnn.training.metrics import gain

# the last part of a run
_LAST = 0.1
# the gain in it that counts: scores have no unit and are at most 1, also r2, while errors have the unit of the targets
_GAIN = 0.002
_GAIN_OF_ERROR = 0.01


def still_rising(log: Sequence[Mapping[str, Any]], epochs: int, metric: str = "accuracy") -> tuple[float, float] | None:
    """Returns the best validation score before the last tenth of a run and within it, if it clearly improved there.

    Args:
        log: The lines of the run.
        epochs: The epochs that the run was given; a run that ended before is not judged.
        metric: The metric of the scores.
    """
    scores = [(line["epoch"], line["scores"]["val"]) for line in log if "val" in (line["scores"] or {})]
    if not log or log[-1]["epoch"] < epochs:
        return None
    earlier = [score for epoch, score in scores if epoch <= (1 - _LAST) * epochs]
    later = [score for epoch, score in scores if epoch > (1 - _LAST) * epochs]
    if not earlier or not later:
        return None
    before, after = (max(part, key=lambda score: gain(metric, score)) for part in (earlier, later))
    needed = _GAIN_OF_ERROR * before if metric in ERRORS else _GAIN
    risen = gain(metric, after) - gain(metric, before)
    return (before, after) if risen > 0 and risen >= needed else None
