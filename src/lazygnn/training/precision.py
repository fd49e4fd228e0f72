"""The arithmetic of a training step: float32, TensorFloat-32 products, or bfloat16 by autocast.

Weights, their updates, the loss and all evaluation are float32 in every case.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["float32", "tf32", "bfloat16"]


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
