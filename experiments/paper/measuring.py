"""Time and memory of an epoch, measured in this process."""

import math
import statistics
from itertools import islice
from typing import Any

import torch

from common.batches import DrawnBatches, StoredBatches
from common.measure import MIB, Memory
from experiments.grid import Result
from lazygnn.batch import Loader
from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.history import named_histories
from lazygnn.methods import build
from lazygnn.ops import choose_device
from lazygnn.training import EpochReport, Trainer

TIME, GPU, HOST, UPDATES = "s/epoch", "GPU memory", "host memory", "updates"
# kernels are compiled in the first epoch, and steps are recorded for replay in the second
WARMUP = 2


def epochs(repeats: int) -> dict[str, Any]:
    """Returns the options that measure some epochs."""
    # the last epoch would evaluate, which takes time and memory of its own; it is not trained
    return {"epochs": WARMUP + repeats + 1, "eval_every": 10_000, "diagnose_every": 0}


class _Enough(Exception):
    """Ends the training when enough epochs are measured."""


def measure(
    config: Config, graph: Graph, num_batches: int | None = None, *, drawn: bool = False, limit: float = math.inf
) -> Result:
    """Trains a few epochs and returns the median time, updates, and the peak of GPU memory and the histories in MiB.

    Args:
        config: What to train, with the options of `epochs`.
        graph: The graph, on any device.
        num_batches: How many batches of an epoch are measured, their time scaled up; all if it is `None`.
        drawn: Whether these batches are drawn anew in every epoch, within the time; otherwise they are stored before.
        limit: Seconds of measured epochs after which no further one is begun; at least one is measured.
    """
    device, last = choose_device(config.device), config.trainer.epochs - 1
    try:
        torch.manual_seed(0)
        built = build(config, graph, device)
        loader = built.loader if num_batches is None else _few(built.loader, num_batches, drawn=drawn)
        seconds, memory = list[float](), Memory(device)

        def on_epoch(report: EpochReport) -> None:
            seconds.append(report.seconds)
            memory.record()
            if len(seconds) == last or (len(seconds) > WARMUP and sum(seconds[WARMUP:]) > limit):
                raise _Enough

        memory.record()
        Trainer(built.model, loader, built.graph, config.trainer, on_epoch=on_epoch).run()
    except _Enough:
        pass
    except torch.OutOfMemoryError:
        return {"status": "out of memory"}
    found = memory.summary(slice(1, None))
    resident, peak = found["resident MiB"], found["step peak MiB"]
    stored = sum(each.num_bytes for each in named_histories(built.model).values())
    on_host = config.model.model_dump().get("history") == "pinned"
    return {
        "status": "ok",
        TIME: statistics.median(seconds[WARMUP:]) * len(built.loader) / len(loader),
        GPU: None if resident is None or peak is None else resident + peak,
        HOST: stored / MIB if on_host else None,
        UPDATES: len(built.loader),
        "batches": f"{len(loader)} of {len(built.loader)}",
        "epochs": len(seconds) - WARMUP,
    }


def shown(value: float, unit: str) -> str:
    """Returns a measured value as text: seconds if the unit is `TIME`, else MiB."""
    return f"{value:.3g} s" if unit == TIME else f"{value:,.0f} MiB"


def _few(loader: Loader, num_batches: int, *, drawn: bool) -> Loader:
    if drawn:
        return DrawnBatches(loader, num_batches)
    return StoredBatches(loader, list(islice(loader.sweep(), num_batches)))
