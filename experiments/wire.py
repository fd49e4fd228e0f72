"""What methods send for one node of a halo in an epoch, if every rank has one part and takes one step an epoch."""

import torch

from lazygnn.history.codec import Codec

STEPS = 10
LAYERS, WIDTH = 3, 128
SAMPLED = 0.1
_FLOAT = 4


def lazy(outputs: int, dtype: torch.dtype = torch.float32, *, gradients: bool = False) -> float:
    """Returns the bytes of lazy propagation: the stored row of a node, and with `gradients` a second one."""
    layout = Codec(dtype, torch.float32).layout(1, outputs)
    row = sum(torch.Size(shape).numel() * kind.itemsize for shape, kind in layout.values())
    return float(2 * row if gradients else row)


def appnp(outputs: int) -> float:
    """Returns the bytes of exact steps: a row in every step, and its gradient."""
    return 2.0 * STEPS * outputs * _FLOAT


def pipegcn() -> float:
    """Returns the bytes of a GCN: a row and its gradient in every layer but the first, which is propagated once."""
    return 2.0 * (LAYERS - 1) * WIDTH * _FLOAT


def bns() -> float:
    """Returns the bytes of a GCN that draws a share of the halo."""
    return SAMPLED * pipegcn()
