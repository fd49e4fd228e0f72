"""How much memory a file may ask for: in proportion to its size, and no more than there is.

A damaged or hostile file can claim any size in a few bytes, so every claim is compared with the budget before memory
is allocated.
"""

import math
import resource
from pathlib import Path

from lazygnn.errors import GraphError

# bytes of memory per byte of a file, and for a file of any size
_FACTOR, _SLACK = 8, 64 * 2**20
# columns and classes for a file of any size; more of them must be filled
_FREE_WIDTH = 65_536
_UNITS = ("kB", "MB", "GB", "TB", "PB")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def check_claim(what: str, claimed: int, size: int, remedy: str) -> None:
    """Refuses content that takes much more memory than the file has bytes, or more than is free.

    Args:
        what: Where the content is, such as `the archive`; begins the message.
        claimed: Bytes that it takes in memory.
        size: Bytes of the file.
        remedy: Ends the message.
    """
    if claimed > budget(size):
        raise GraphError(f"{what} takes {in_words(claimed)} of memory, but the file has {in_words(size)}; {remedy}")
    if claimed > (free := free_memory()):
        raise GraphError(f"{what} takes {in_words(claimed)} of memory, but {in_words(free)} are free; free some memory")


def budget(size: int) -> int:
    """Returns the bytes of memory that the content of a file may take."""
    return _FACTOR * size + _SLACK


def check_width(what: str, width: int, filled: int) -> None:
    """Refuses a number of columns or classes that is out of proportion to the entries that fill them.

    Every column takes memory in the weights of a model, and a file claims a column without a byte for it.
    """
    if width > _FREE_WIDTH + filled:
        raise GraphError(
            f"{what} is {width:,}, with {filled:,} entries to fill them; remove the empty ones, so that at most "
            f"{_FREE_WIDTH + filled:,} are left"
        )


def free_memory() -> int:
    """Returns the bytes that this process can still allocate, by the system, its container and its own limit."""
    limits = [_free_of_system(), _free_of_container(), _free_of_process()]
    return min(limit for limit in limits if limit is not None)


def in_words(num_bytes: int) -> str:
    """Returns a number of bytes in words, such as `1.5 GB`."""
    if num_bytes < 1000:
        return f"{num_bytes} bytes"
    power = min(int(math.log10(num_bytes) + 1e-9) // 3, len(_UNITS))
    return f"{num_bytes / 1000**power:,.3g} {_UNITS[power - 1]}"


def _free_of_system() -> int:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    # not known: a process cannot address more
    return 2**47


def _free_of_container() -> int | None:
    try:
        return int((_CGROUP / "memory.max").read_text()) - int((_CGROUP / "memory.current").read_text())
    # not limited, or not a container
    except (OSError, ValueError):
        return None


def _free_of_process() -> int | None:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        used = 0
    return max(limit - used, 0)
