"""Fused batch norm, ReLU and dropout, and fused ReLU or GELU and dropout, for an accelerator.

Batch norm reads its rows twice in the forward pass, and rows and gradients twice in the backward pass. Torch's
generator draws the seed of dropout on the device. Seeding torch is therefore enough, and each replay of a CUDA graph
draws a new mask.
"""

from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn.ops.triton import activation_kernels as kernels
from lazygnn.ops.triton.alignment import columns_per_load
from lazygnn.ops.triton.layer_norm import MOST_COLUMNS, layer_norm

__all__ = ["MOST_COLUMNS", "batch_norm_relu_dropout", "gelu_dropout", "layer_norm", "relu_dropout"]

_WARP = 32
_WARPS = 8
# loads of 16 bytes that a thread has in flight, per tensor
_VECTORS = 4
# programs that sum, per multiprocessor; all of them run at the same time
_PER_PROCESSOR = 4
_LEVELS: int = kernels.LEVELS.value
# the tile of per-program sums that is combined at a time
_COMBINED = {"PROGRAMS": 512, "WIDTH": 8}
_OPTIONS = {"num_warps": _WARPS, "enable_fp_fusion": False}


def batch_norm_relu_dropout(x: Tensor, norm: nn.BatchNorm1d, p: float) -> Tensor:
    """Returns `dropout(relu(norm(x)))` in training mode for two or more rows, and updates the running statistics.

    Saves only `x` for the backward pass. `p` is rounded to a multiple of 2^-16, and the scale uses the rounded value.
    """
    statistics = norm.running_mean, norm.running_var, norm.num_batches_tracked
    out: Tensor = _BatchNormReluDropout.apply(  # type: ignore[no-untyped-call]
        x, norm.weight, norm.bias, *statistics, norm.eps, float(norm.momentum or 0), p
    )
    return out


def relu_dropout(x: Tensor, p: float) -> Tensor:
    """Returns `dropout(relu(x))` and saves only this result for the backward pass; `p` is rounded to 2^-16."""
    out: Tensor = _ReluDropout.apply(x, p)  # type: ignore[no-untyped-call]
    return out


def gelu_dropout(x: Tensor, p: float) -> Tensor:
    """Returns `dropout(gelu(x))` and saves only `x` for the backward pass; `p` is rounded to 2^-16."""
    out: Tensor = _GeluDropout.apply(x, p)  # type: ignore[no-untyped-call]
    return out


class _BatchNormReluDropout(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        num_batches: Tensor,
        eps: float,
        momentum: float,
        p: float,
    ) -> Tensor:
        num_rows, columns = x.shape
        ctx.kept = _kept(p)
        seed = _seed(x, ctx.kept)
        num_programs, summed = _summed(x)
        partial = torch.empty(2, num_programs, columns, device=x.device)
        counts = torch.empty(num_programs, device=x.device)
        mean, invstd = torch.empty(2, columns, device=x.device)
        out = torch.empty_like(x)
        with torch.cuda.device_of(x):
            blocks = triton.cdiv(columns, summed["WIDTH"])
            kernels.partial_moments[(num_programs * blocks,)](
                x, partial, counts, num_rows, num_programs, COLUMNS=columns, **summed, **_OPTIONS
            )
            kernels.combine_moments[(triton.cdiv(columns, _COMBINED["WIDTH"]),)](
                x,
                partial,
                counts,
                mean,
                invstd,
                running_mean,
                running_var,
                num_batches,
                num_rows,
                num_programs,
                eps,
                momentum,
                COLUMNS=columns,
                **_COMBINED,
                **_OPTIONS,
            )
            tile = _tile(x, columns, _VECTORS)
            kernels.normalize[(triton.cdiv(num_rows, tile["ROWS"]) * blocks,)](
                x, mean, invstd, weight, bias, seed, out, num_rows, ctx.kept, COLUMNS=columns, **tile, **_OPTIONS
            )
        ctx.save_for_backward(x, mean, invstd, weight, bias, seed)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, mean, invstd, weight, bias, seed = ctx.saved_tensors
        num_rows, columns = x.shape
        grad = grad.contiguous()
        num_programs, summed = _summed(x)
        partial = torch.empty(2, num_programs, columns, device=x.device)
        grad_weight, grad_bias = torch.empty(2, columns, device=x.device)
        out = torch.empty_like(x)
        norm = (mean, invstd, weight, bias)
        with torch.cuda.device_of(x):
            blocks = triton.cdiv(columns, summed["WIDTH"])
            kernels.partial_gradients[(num_programs * blocks,)](
                grad, x, *norm, seed, partial, num_rows, num_programs, ctx.kept, COLUMNS=columns, **summed, **_OPTIONS
            )
            kernels.combine_gradients[(triton.cdiv(columns, _COMBINED["WIDTH"]),)](
                partial, invstd, grad_weight, grad_bias, num_programs, COLUMNS=columns, **_COMBINED, **_OPTIONS
            )
            tile = _tile(x, columns, _VECTORS)
            kernels.normalize_back[(triton.cdiv(num_rows, tile["ROWS"]) * blocks,)](
                grad,
                x,
                *norm,
                grad_weight,
                grad_bias,
                seed,
                out,
                num_rows,
                ctx.kept,
                COLUMNS=columns,
                **tile,
                **_OPTIONS,
            )
        return out, grad_weight, grad_bias, None, None, None, None, None, None


class _ReluDropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.kept = _kept(p)
        out = torch.empty_like(x)
        _launch_flat(kernels.relu_drop, (x, _seed(x, ctx.kept)), out, ctx.kept)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        out = torch.empty_like(kept)
        _launch_flat(kernels.relu_drop_back, (grad.contiguous(), kept), out, ctx.kept)
        return out, None


class _GeluDropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        ctx.kept = _kept(p)
        seed = _seed(x, ctx.kept)
        out = torch.empty_like(x)
        _launch_flat(kernels.gelu_drop, (x, seed), out, ctx.kept)
        ctx.save_for_backward(x, seed)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, seed = ctx.saved_tensors
        out = torch.empty_like(x)
        _launch_flat(kernels.gelu_drop_back, (grad.contiguous(), x, seed), out, ctx.kept)
        return out, None


def _launch_flat(kernel: Any, inputs: tuple[Tensor | None, ...], out: Tensor, kept: int) -> None:
    """Runs a kernel on all entries in memory order, whatever the shape."""
    tile = _tile(out, out.numel(), _VECTORS)
    with torch.cuda.device_of(out):
        grid = (triton.cdiv(out.numel(), tile["ROWS"] * tile["WIDTH"]),)
        kernel[grid](*inputs, out, out.numel(), kept, **tile, **_OPTIONS)


def _tile(x: Tensor, columns: int, vectors: int) -> dict[str, int]:
    """Returns a tile with `vectors` loads of 16 bytes per thread; its rows are at most one load of a warp wide."""
    unit = columns_per_load(x)
    width = min(max(triton.next_power_of_2(columns), unit), _WARP * unit)
    return {"UNIT": unit, "ROWS": vectors * _WARPS * _WARP * unit // width, "WIDTH": width}


def _summed(x: Tensor) -> tuple[int, dict[str, int]]:
    """Returns how many programs share the rows of a block of columns, and the tile with which they sum."""
    num_rows, columns = x.shape
    tile = _tile(x, columns, 1) | {"UNROLL": _VECTORS}
    most = _PER_PROCESSOR * _processors(x.device) // triton.cdiv(columns, tile["WIDTH"])
    return max(min(triton.cdiv(num_rows, tile["ROWS"] * tile["UNROLL"]), most), 1), tile


def _processors(device: torch.device) -> int:
    # The interpreter runs one program at a time.
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _kept(p: float) -> int:
    if not 0 <= p < 1:
        raise ValueError(f"`p` must be in [0, 1), got {p}")
    return max(round((1 - p) * _LEVELS), 1)


def _seed(x: Tensor, kept: int) -> Tensor | None:
    if kept == _LEVELS:
        return None
    return torch.empty((), dtype=torch.int64, device=x.device).random_()
