"""The result of a run, as `train` and `evaluate` print it."""

import resource
import sys
from pathlib import Path
from typing import Any

import torch

from lazygnn.config import Config
from lazygnn.task import Task


def make_result(
    config: Config,
    metric: str,
    scores: dict[str, float],
    *,
    trained: dict[str, Any],
    task: Task,
    device: torch.device,
    path: Path,
) -> dict[str, Any]:
    """Returns the fields of the JSON line in their order.

    Args:
        config: The configuration of the run.
        metric: The name of the metric.
        scores: The score on every split.
        trained: Fields about the training: `epochs`, `best_epoch`, `seconds_per_epoch`, `seconds`, `eval_seconds`, and
            `shares` of a model that is an average of several.
        task: What is predicted; of several labels, the result names the threshold.
        device: The device that computed the scores.
        path: The run folder.
    """
    result = {
        "method": config.method,
        "dataset": config.dataset,
        "seed": config.seed,
        "metric": metric,
        "val": scores.get("val"),
        "test": scores.get("test"),
        "epochs": trained.get("epochs"),
        "best_epoch": trained.get("best_epoch"),
        "seconds_per_epoch": trained.get("seconds_per_epoch"),
        "seconds": trained.get("seconds"),
        "eval_seconds": trained.get("eval_seconds"),
        "peak_memory_mib": peak_memory_mib(device),
        "run": str(path),
    }
    shares = {"shares": trained["shares"]} if trained.get("shares") else {}
    return result | shares | ({"threshold": task.threshold} if task.kind == "multi-label" else {})


def peak_memory_mib(device: torch.device) -> float:
    """Returns the peak memory so far: on a GPU as reserved by torch, on a CPU of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # macOS counts bytes, Linux kibibytes
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
