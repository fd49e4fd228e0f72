"""Dropout that costs a CPU little: a byte of the generator an entry, and integer arithmetic instead of comparisons.

torch draws a double for every entry, one at a time; on a CPU that can take longer than the layer it is for.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

# the integer of the same size, of which a mask keeps all bits or none
_INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}


def dropout_(x: Tensor, p: float) -> tuple[Tensor, float]:
    """Sets a random share `p` of the entries of `x` to zero and scales the others, in place.

    On a CPU `p` is rounded to a multiple of 2^-16, and the scale follows, so the mean is kept.

    Returns:
        `x`, and the scale.
    """
    if not 0 <= p < 1:
        raise ValueError(f"`p` must lie in [0, 1), got {p}")
    if x.device.type != "cpu" or x.dtype not in _INTEGERS or not x.is_contiguous():
        return F.dropout(x, p, inplace=True), 1 / (1 - p)
    # a byte is enough where it can tell kept from dropped, as for 0.5
    kind = torch.int8 if (256 * p).is_integer() else torch.int16
    levels = 256**kind.itemsize
    kept = max(round((1 - p) * levels), 1)
    words = torch.empty(-(-x.numel() * kind.itemsize // 8), dtype=torch.int64).random_(-(2**63), None)
    drawn = words.view(kind)[: x.numel()].view_as(x)
    integer = _INTEGERS[x.dtype]
    wide = integer if integer.itemsize > kind.itemsize else torch.int32
    # all ones where the number drawn is below the threshold, else zero
    mask = drawn.to(wide).sub_(kept - levels // 2).bitwise_right_shift_(8 * wide.itemsize - 1)
    x.mul_(levels / kept).view(integer).bitwise_and_(mask.to(integer))
    return x, levels / kept
