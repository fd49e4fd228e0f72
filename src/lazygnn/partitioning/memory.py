"""The memory that this process can still take."""

import os
from pathlib import Path


def memory_at_hand(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Returns the bytes that are free for this process, within the limits of its container; `None` if not known.

    Args:
        proc: Where Linux tells about memory and processes.
        cgroups: Where Linux tells about the limits of containers.
    """
    found = [_available(proc / "meminfo"), *_left_in_groups(proc / "self" / "cgroup", cgroups)]
    known = [size for size in found if size is not None]
    return max(min(known), 0) if known else _physical()


def _available(meminfo: Path) -> int | None:
    for line in _lines(meminfo):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _left_in_groups(own: Path, cgroups: Path) -> list[int]:
    """Returns what is left in every group with a limit, from that of the process to the root."""
    paths = [line.split(":", 2)[2] for line in _lines(own) if line.startswith("0::")]
    found = []
    for path in paths:
        folder = cgroups / path.lstrip("/")
        while folder.is_relative_to(cgroups):
            limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
            if limit is not None and used is not None:
                found.append(limit - used + _reclaimable(folder / "memory.stat"))
            if folder == cgroups:
                break
            folder = folder.parent
    return found


def _reclaimable(stat: Path) -> int:
    """Returns the bytes of cached files, which a group gives up when it needs memory."""
    for line in _lines(stat):
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0


def _number(file: Path) -> int | None:
    text = "".join(_lines(file))
    # without a limit it says `max`
    return int(text) if text.isdigit() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
