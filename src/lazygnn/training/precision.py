"""The arithmetic of a training step: float32, TensorFloat-32 products, or bfloat16 by autocast.

Weights, their updates, the loss and all evaluation are always float32.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Literal

import torch

Precision = Literal["float32", "tf32", "bfloat16"]
# size of the square product that measures a CPU: large enough for a fast path, small enough for a slow one
_MEASURED = 128


def forward_precision(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Returns the context that the forward pass runs in."""
    if precision != "bfloat16":
        return nullcontext()
    # a weight is used once in a pass, and a CUDA graph must not read the copy that an earlier pass has made
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


@contextmanager
def product_precision(precision: Precision) -> Iterator[None]:
    """Sets the arithmetic of float32 products on a GPU; this is torch's global setting, for all threads."""
    if precision != "tf32":
        yield
        return
    products = torch.backends.cuda.matmul
    before = products.fp32_precision
    products.fp32_precision = "tf32"
    try:
        yield
    finally:
        products.fp32_precision = before


@cache
def cost_of_bfloat16() -> float:
    """Measures how many times as long a product in bfloat16 takes on this CPU as one in float32.

    The value is below 1 for a CPU with bfloat16 instructions, and tens or hundreds for one without.
    """
    return _seconds_of_product(torch.bfloat16) / _seconds_of_product(torch.float32)


def _seconds_of_product(dtype: torch.dtype) -> float:
    x, seconds = torch.ones(_MEASURED, _MEASURED, dtype=dtype), []
    # the first repetition warms up; the minimum has the least noise
    for _ in range(4):
        started = time.perf_counter()
        x @ x
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])
