"""The arithmetic of a training step: float32, TensorFloat-32 products, or bfloat16 by autocast.

Weights, their updates, the loss and all evaluation are float32 in every case.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["float32", "tf32", "bfloat16"]
# of a square product that a CPU is measured by: large enough for its fast path, small enough for its slow one
_MEASURED = 128


def forward_precision(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """What the forward pass runs in."""
    if precision != "bfloat16":
        return nullcontext()
    # a weight is used once in a pass, and a CUDA graph must not find the copy that an earlier pass has made
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


@contextmanager
def product_precision(precision: Precision) -> Iterator[None]:
    """What float32 products of a GPU run in for a while; the setting is torch's own and the same for all threads."""
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


def widened(x: Tensor) -> Tensor:
    """`x` in float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@cache
def cost_of_bfloat16() -> float:
    """How many times as long as in float32 this CPU takes for a product in bfloat16: a measurement of a few products.

    Below one where it has instructions for them, tens or hundreds where it has not.
    """
    return _seconds_of_product(torch.bfloat16) / _seconds_of_product(torch.float32)


def _seconds_of_product(dtype: torch.dtype) -> float:
    x, seconds = torch.ones(_MEASURED, _MEASURED, dtype=dtype), []
    # the first one prepares, and the fastest was disturbed least
    for _ in range(4):
        started = time.perf_counter()
        x @ x
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])
