"""The one place that multiplies: sparse times dense, propagation steps, aggregation.

With the environment variable `LAZYGNN_KERNELS=auto`, products on an accelerator run as fused Triton kernels. The
default is `reference`, plain PyTorch everywhere, until the kernels have been measured on hardware.
"""

import os
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn.errors import ConfigError
from lazygnn.ops import reference
from lazygnn.ops.csr import Adjacency, Csr, index_dtype, row_chunks, to_tensor
from lazygnn.ops.dropout import dropout_

__all__ = [
    "Adjacency",
    "Csr",
    "aggregate",
    "dropout_",
    "index_dtype",
    "row_chunks",
    "run_steps",
    "spmm",
    "step",
    "to_tensor",
]

_SWITCH = "LAZYGNN_KERNELS"
_FUSED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def spmm(matrix: Csr, x: Tensor) -> Tensor:
    """`matrix @ x` for a dense `x`."""
    out: Tensor = _kernels(matrix, x).spmm(matrix, x)
    return out


def step(
    adj: Csr, x: Tensor, source: Tensor, alpha: float, *, previous: Tensor | None = None, momentum: float = 0.0
) -> Tensor:
    """`(1 - alpha) adj @ x + alpha source` on the rows of `adj`; the rows of `x` below them keep their value.

    With the value that `x` had a step before, `momentum (x - previous)` is added: the heavy-ball method. No argument
    is changed. On an accelerator the columns of the result may be a view of wider rows.
    """
    kernels = _kernels(adj, x, source, previous)
    out: Tensor = kernels.step(adj, x, source, alpha, previous=previous, momentum=momentum)
    return out


def run_steps(
    adjs: Sequence[Csr], x: Tensor, sources: Iterable[Tensor], alpha: float, *, momentum: float = 0.0
) -> Tensor:
    """A step for each matrix and its source; the rows that the last one reaches, or `x` where there is none."""
    if not adjs:
        return x
    out: Tensor = _kernels(adjs[0], x).run_steps(adjs, x, sources, alpha, momentum=momentum)
    return out


def aggregate(matrix: Csr, x: Tensor) -> Tensor:
    """`matrix @ x`, differentiable in `x`; the matrix is transposed once, in the first backward pass.

    For an adjacency it sums over neighbours; for sparse features and a weight it is the first layer.
    """
    out: Tensor = _Aggregate.apply(x, matrix)  # type: ignore[no-untyped-call]
    return out


class _Aggregate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Csr) -> Tensor:
        ctx.matrix = matrix
        return spmm(matrix, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return spmm(ctx.matrix.T, grad.contiguous()), None


def _kernels(matrix: Csr, *operands: Tensor | None) -> ModuleType:
    """The module whose products these operands can go through."""
    tensors = [matrix.value, *(operand for operand in operands if operand is not None)]
    fits = all(tensor.is_cuda and tensor.dtype in _FUSED_DTYPES for tensor in tensors)
    # the fused products know no gradient of their own
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return (_fused() if fits and not recorded and _wanted() else None) or reference


def _wanted() -> bool:
    choice = os.environ.get(_SWITCH, "reference")
    if choice not in ("auto", "reference"):
        raise ConfigError(f"`{_SWITCH}` must be `auto` or `reference`, got `{choice}`")
    return choice == "auto"


@cache
def _fused() -> ModuleType | None:
    try:
        # fails without a driver, or without the compiler that Triton's launcher needs
        import_module("triton").runtime.driver.active.get_current_target()
        return import_module("lazygnn.ops.fused")
    except Exception as error:
        warnings.warn(
            f"Triton does not work here ({error}), so sparse products run in plain PyTorch, several times slower; "
            f"`{_SWITCH}=reference` silences this",
            stacklevel=4,
        )
        return None
