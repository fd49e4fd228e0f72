"""Time and memory, measured alike everywhere: by the clock and allocator of a GPU, or the clock of the process."""

import gc
import time
from collections.abc import Callable

import torch

MIB = 2**20
_COPIED = {"cuda": 2**30, "cpu": 2**28}


def seconds_of(function: Callable[[], object], device: torch.device, *, repeats: int, warmup: int = 2) -> list[float]:
    """Seconds of every repeat, after a warm-up that is not counted."""
    for _ in range(warmup):
        function()
    if device.type != "cuda":
        return [_timed(function) for _ in range(repeats)]
    # all repeats are queued before the first is waited for, so that no launch is waited for in between
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
    """Bytes a second that a plain copy reads and writes."""
    source = torch.zeros(_COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    seconds = sorted(seconds_of(lambda: target.copy_(source), device, repeats=repeats))
    return 2 * len(source) / seconds[repeats // 2]


def settle(device: torch.device) -> None:
    """Gives back what is no longer used, so that what comes next starts clean."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


class Memory:
    """Memory of steps, by the allocator of a GPU; a process does not tell what it needs from what it has kept."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.resident, self.peak = list[int](), list[int]()

    def look(self) -> None:
        """Notes what is held now and the most that was held since the last look."""
        if self.device.type == "cuda":
            self.resident.append(torch.cuda.memory_allocated(self.device))
            self.peak.append(torch.cuda.max_memory_allocated(self.device))
            torch.cuda.reset_peak_memory_stats(self.device)

    def summary(self, looks: slice) -> dict[str, float | None]:
        """What is resident at the end of some looks, and the most that was held over it in their course."""
        if not self.resident:
            return {"resident MiB": None, "step peak MiB": None}
        resident = self.resident[looks][-1]
        return {"resident MiB": resident / MIB, "step peak MiB": (max(self.peak[looks]) - resident) / MIB}
