"""Layer norm for an accelerator, in the dtype of its rows.

Torch's own kernel sums the gradients of weight and bias slowly where there are many rows and few columns, and autocast
copies 16-bit rows to float32 and back around it.
"""

from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn.ops.triton import layer_norm_kernels as kernels

# a program holds whole rows in registers
MOST_COLUMNS = 1024
_WARPS = 4
# entries of a tile: those of a pass that reads one tensor, and those of one that reads two and keeps sums
_FORWARD = 4096
_BACKWARD = 2048
# programs of the backward pass, per multiprocessor
_PER_PROCESSOR = 4
_OPTIONS = {"num_warps": _WARPS, "enable_fp_fusion": False}


def layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """Returns `norm(x)` for rows of at most `MOST_COLUMNS` columns, in the dtype of `x`; saves only `x`."""
    out: Tensor = _LayerNorm.apply(x, norm.weight, norm.bias, norm.eps)  # type: ignore[no-untyped-call]
    return out


class _LayerNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        x = x.contiguous()
        tile = _tile(x, _FORWARD)
        out = torch.empty_like(x)
        with torch.cuda.device_of(x):
            kernels.normalize_rows[(triton.cdiv(len(x), tile["ROWS"]),)](
                x, weight, bias, out, len(x), eps, **tile, **_OPTIONS
            )
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        tile = _tile(x, _BACKWARD)
        num_programs = max(min(triton.cdiv(len(x), tile["ROWS"]), _PER_PROCESSOR * _processors(x.device)), 1)
        partial = torch.empty(2, num_programs, x.shape[1], device=x.device)
        out = torch.empty_like(x)
        with torch.cuda.device_of(x):
            kernels.normalize_rows_back[(num_programs,)](
                grad.contiguous(), x, weight, out, partial, len(x), num_programs, ctx.eps, **tile, **_OPTIONS
            )
        grad_weight, grad_bias = partial.sum(1)
        return out, grad_weight, grad_bias, None


def _tile(x: Tensor, entries: int) -> dict[str, int]:
    width = triton.next_power_of_2(x.shape[1])
    return {"COLUMNS": x.shape[1], "ROWS": max(entries // width, 1), "WIDTH": width}


def _processors(device: torch.device) -> int:
    # The interpreter runs one program at a time.
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
