"""Tells from the log of a run whether it ended too early."""

from collections.abc import Mapping, Sequence
from typing import Any

# the last part of a run, and the gain in it that counts
_LAST = 0.1
_GAIN = 0.002


def still_rising(log: Sequence[Mapping[str, Any]], epochs: int) -> tuple[float, float] | None:
    """Returns the best validation score before the last tenth of a run and within it, if it clearly rose there.

    Args:
        log: The lines of the run.
        epochs: The epochs that the run was given; a run that ended before is not judged.
    """
    scores = [(line["epoch"], line["scores"]["val"]) for line in log if "val" in (line["scores"] or {})]
    if not log or log[-1]["epoch"] < epochs:
        return None
    earlier = [score for epoch, score in scores if epoch <= (1 - _LAST) * epochs]
    later = [score for epoch, score in scores if epoch > (1 - _LAST) * epochs]
    if not earlier or not later or max(later) - max(earlier) < _GAIN:
        return None
    return max(earlier), max(later)
