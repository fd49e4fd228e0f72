"""Returns memory of training to the system, so that an evaluation does not add to it."""

import ctypes
import mmap

from torch import Tensor


def return_free_memory() -> bool:
    """Returns what is free, but held by the allocator, to the system; returns whether the C library can do that.

    Batches of training leave some hundred MB of it in every rank, beside what an evaluation takes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and trim(0) in (0, 1)


def drop_pages(x: Tensor) -> bool:
    """Returns the memory of a contiguous tensor to the system, and the tensor stays usable; its values are lost.

    Does nothing on a GPU, or where the system cannot do that; returns whether it was done.
    """
    advise, drop = getattr(ctypes.CDLL(None), "madvise", None), getattr(mmap, "MADV_DONTNEED", None)
    if x.device.type != "cpu" or not x.is_contiguous() or advise is None or drop is None:
        return False
    # whole pages only: what shares a page with something else stays
    start = -(-x.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    stop = (x.data_ptr() + x.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if stop <= start:
        return False
    return bool(advise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), drop) == 0)
