"""Fast dropout for CPUs: one or two random bytes per entry, and integer arithmetic instead of comparisons.

On a CPU torch draws one double per entry, which can take longer than the layer itself.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

# integer types of the same size, for masks that keep all bits of an entry or none
_INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}


def dropout_(x: Tensor, p: float) -> tuple[Tensor, float]:
    """Sets a random share `p` of the entries of `x` to zero and scales the others, in place.

    On a CPU `p` is rounded to a multiple of 2^-16. The scale uses the rounded value, so that the mean is preserved.

    Returns:
        `x` and the scale.
    """
    if not 0 <= p < 1:
        raise ValueError(f"`p` must be in [0, 1), got {p}")
    if x.device.type != "cpu" or x.dtype not in _INTEGERS or not x.is_contiguous():
        return F.dropout(x, p, inplace=True), 1 / (1 - p)
    # One byte is enough if `p` is a multiple of 2^-8, such as 0.5.
    kind = torch.int8 if (256 * p).is_integer() else torch.int16
    levels = 256**kind.itemsize
    kept = max(round((1 - p) * levels), 1)
    words = torch.empty(-(-x.numel() * kind.itemsize // 8), dtype=torch.int64).random_(-(2**63), None)
    drawn = words.view(kind)[: x.numel()].view_as(x)
    integer = _INTEGERS[x.dtype]
    wide = integer if integer.itemsize > kind.itemsize else torch.int32
    # All bits are set where the drawn number is below the threshold; otherwise none are.
    mask = drawn.to(wide).sub_(kept - levels // 2).bitwise_right_shift_(8 * wide.itemsize - 1)
    x.mul_(levels / kept).view(integer).bitwise_and_(mask.to(integer))
    return x, levels / kept
