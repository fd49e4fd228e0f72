"""Time and memory: by the events and allocator of a GPU, or the clock of the process."""

import gc
import time
from collections.abc import Callable

import torch

MIB = 2**20
_COPIED = {"cuda": 2**30, "cpu": 2**28}


def seconds_of(function: Callable[[], object], device: torch.device, *, repeats: int, warmup: int = 2) -> list[float]:
    """Returns the seconds of every repetition, after a warm-up."""
    for _ in range(warmup):
        function()
    if device.type != "cuda":
        return [_timed(function) for _ in range(repeats)]
    # all repetitions are queued before synchronizing, so that launches do not add to the time
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    torch.cuda.synchronize(device)
    for before, after in events:
        before.record()
        function()
        after.record()
    torch.cuda.synchronize(device)
    return [before.elapsed_time(after) / 1000 for before, after in events]


def _timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def copy_bandwidth(device: torch.device, *, repeats: int = 10) -> float:
    """Returns the bytes per second that a plain copy reads and writes."""
    source = torch.zeros(_COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = sorted(seconds_of(lambda: target.copy_(source), device, repeats=repeats))
    return 2 * len(source) / seconds[repeats // 2]


def settle(device: torch.device) -> None:
    """Frees unused memory before the next measurement."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


class Memory:
    """Memory of steps, by the allocator of a GPU; it is not measured on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.resident, self.peak = list[int](), list[int]()

    def record(self) -> None:
        """Records the memory in use and its peak since the last record."""
        if self.device.type == "cuda":
            self.resident.append(torch.cuda.memory_allocated(self.device))
            self.peak.append(torch.cuda.max_memory_allocated(self.device))
            torch.cuda.reset_peak_memory_stats(self.device)

    def summary(self, records: slice) -> dict[str, float | None]:
        """Returns the memory in use at the last of some records, and the peak above it."""
        if not self.resident:
            return {"resident MiB": None, "step peak MiB": None}
        resident = self.resident[records][-1]
        return {"resident MiB": resident / MIB, "step peak MiB": (max(self.peak[records]) - resident) / MIB}
