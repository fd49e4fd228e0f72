"""Cells of the staleness tables: scores, differences to exact steps, scores at equal time, diagnostics."""

import math
import statistics
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from common.summary import Cell

# entries of a log; the gradient is compared with the exact one, in angle and in length
DIAGNOSTICS = {
    "fixed_point_error": "error of stored features",
    "gradient_cosine": "cosine with exact gradient",
    "gradient_length": "length over exact gradient",
}

Result = dict[str, Any]
Log = list[dict[str, Any]]


def difference(values: Sequence[float], reference: Sequence[float]) -> Cell:
    """Returns the difference of means in percent, its standard error, and the ratio of deviations (`spread`)."""
    deviations = [100 * statistics.stdev(part) for part in (values, reference)]
    error = math.sqrt(sum(deviation**2 / len(values) for deviation in deviations))
    return {
        "mean": 100 * (statistics.mean(values) - statistics.mean(reference)),
        "error": error,
        "spread": deviations[0] / deviations[1] if deviations[1] > 0 else None,
        "seeds": len(values),
    }


def mean_difference(cells: Sequence[Cell]) -> Cell:
    """Returns the mean of differences on several graphs and its standard error."""
    error = math.sqrt(sum(cell["error"] ** 2 for cell in cells)) / len(cells)
    return {"mean": statistics.mean(cell["mean"] for cell in cells), "error": error}


def at_equal_time(results: Sequence[Result]) -> list[Cell | None]:
    """Returns the best score of each run within the training time of the fastest run, and its own training time.

    Runs on another machine, commit or number of epochs than the first run are not comparable and have no cell.
    """
    logs = [line.get("log") if _setting(line) == _setting(results[0]) else None for line in results]
    least = min((elapsed(log)[-1] for log in logs if log), default=0.0)
    return [_within(log, least) if log else None for log in logs]


def last_diagnostics(log: Log) -> Cell | None:
    """Returns the last diagnostics of a log; only a full batch has those of the gradient."""
    found = [line["laziness"] for line in log if line["laziness"]]
    if not found or "fixed_point_error" not in found[-1]:
        return None
    return {name: found[-1].get(name) for name in DIAGNOSTICS}


def elapsed(log: Log) -> list[float]:
    """Returns the training time at every line, in seconds after the first line, since the first epochs compile."""
    return list(accumulate([0.0, *(line["seconds"] for line in log[1:])]))


def _setting(line: Result) -> tuple[Any, ...]:
    return line["machine"], line["commit"], line["epochs"]


def _within(log: Log, seconds: float) -> Cell:
    times = elapsed(log)
    scores = [line["scores"]["val"] for line, at in zip(log, times, strict=True) if line["scores"] and at <= seconds]
    best = 100 * max(scores) if scores else None
    return {"mean": best, "seconds": round(times[-1], 4), "seeds": 1}
