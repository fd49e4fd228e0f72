"""The one place that multiplies: sparse times dense, propagation steps, aggregation.

Products on an accelerator run as fused Triton kernels, and so do activations and the rows of histories, but for small
ones that are launched once and not replayed: a kernel of Triton takes Python longer to launch than one of PyTorch. The
environment variable `LAZYGNN_KERNELS=reference` asks for plain PyTorch everywhere; `auto` is the default.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from lazygnn.ops.csr import Adjacency, Csr, find_device, index_dtype, row_chunks, to_tensor
from lazygnn.ops.dropout import dropout_

__all__ = [
    "Adjacency",
    "Csr",
    "activations",
    "aggregate",
    "describe_kernels",
    "dropout_",
    "far_rows",
    "find_device",
    "history_rows",
    "index_dtype",
    "is_replayed",
    "row_chunks",
    "run_steps",
    "spmm",
    "step",
    "to_be_replayed",
    "to_tensor",
]

_SWITCH = "LAZYGNN_KERNELS"
# entries of an activation, and multiplications, that take a GPU longer than Python takes to launch a kernel of Triton,
# and for a product to look at its pattern first
_LARGE = 1 << 27
_LARGE_PRODUCT = 1 << 29
# no variable of a context: a backward pass runs in a thread of its own
_replayed = False
_FUSED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def spmm(matrix: Csr, x: Tensor) -> Tensor:
    """`matrix @ x` for a dense `x`."""
    out: Tensor = _kernels(matrix, x).spmm(matrix, x)
    return out


def step(
    adj: Csr,
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    share: float = 1.0,
    past: Tensor | None = None,
) -> Tensor:
    """`(1 - alpha) adj @ x + alpha source` on the rows of `adj`; the rows of `x` below them keep their value.

    With a `share`, `lerp(past, source, share)` takes the place of the source; no `past` stands for zero. No argument is
    changed. On an accelerator the columns of the result may be a view of wider rows.
    """
    out: Tensor = _kernels(adj, x, source, past).step(adj, x, source, alpha, share=share, past=past)
    return out


def run_steps(
    adjs: Sequence[Csr],
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    shares: Sequence[float] | None = None,
    past: Tensor | None = None,
) -> Tensor:
    """A step for each matrix, with its share of the source; the rows that the last one reaches, `x` if there is none.

    A step finds its source on all rows that it reaches.
    """
    if not adjs:
        return x
    out: Tensor = _kernels(adjs[0], x, source, past).run_steps(adjs, x, source, alpha, shares=shares, past=past)
    return out


def aggregate(matrix: Csr, x: Tensor) -> Tensor:
    """`matrix @ x`, differentiable in `x`; the matrix is transposed once, in the first backward pass.

    For an adjacency it sums over neighbours; for sparse features and a weight it is the first layer.
    """
    out: Tensor = _Aggregate.apply(x, matrix)  # type: ignore[no-untyped-call]
    return out


def activations(x: Tensor) -> ModuleType | None:
    """The module whose norm, ReLU and dropout `x` can go through, or None where that is for plain PyTorch."""
    # a compiler fuses by itself
    fits = _pays(x.numel(), _LARGE) and not torch.compiler.is_compiling() and x.is_contiguous() and _fits(x)
    return import_module("lazygnn.ops.activation") if fits and _fused() is not None else None


@contextmanager
def to_be_replayed() -> Iterator[None]:
    """Says that what is launched here is launched once and replayed many times, as a CUDA graph."""
    global _replayed
    before, _replayed = _replayed, True
    try:
        yield
    finally:
        _replayed = before


def is_replayed() -> bool:
    """Whether what is launched now is replayed later."""
    return _replayed


def history_rows(*tensors: Tensor) -> ModuleType | None:
    """The module that gathers and scatters such rows of a history, or None where that is for plain PyTorch."""
    fits = not _recorded(*tensors) and _fits(*tensors)
    return import_module("lazygnn.ops.rows") if fits and _fused() is not None else None


def far_rows(table: Tensor) -> ModuleType:
    """The module that copies rows from and to a table in host memory that a device sees as its own."""
    fits = table.is_cuda and _wanted() and _fused() is not None
    return import_module("lazygnn.ops.bus") if fits else reference


def describe_kernels() -> str:
    """Whose kernels run on a GPU here, and why not ours, in words."""
    if not _wanted():
        return f"plain PyTorch, since {_SWITCH}=reference"
    if not torch.cuda.is_available():
        return "plain PyTorch, since there is no GPU"
    return "plain PyTorch, since Triton does not work here" if _fused() is None else "Triton"


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
    pays = _pays(len(matrix.col) * tensors[1].shape[1], _LARGE_PRODUCT)
    # the fused products know no gradient of their own
    return (_fused() if pays and not _recorded(*tensors) and _fits(*tensors) else None) or reference


def _pays(work: int, enough: int) -> bool:
    """Whether a kernel of Triton is worth its launch: where there is enough to do, or where it is replayed."""
    return work >= enough or (work > 0 and _replayed)


def _recorded(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _fits(*tensors: Tensor) -> bool:
    return all(tensor.is_cuda and tensor.dtype in _FUSED_DTYPES for tensor in tensors) and _wanted()


def _wanted() -> bool:
    choice = os.environ.get(_SWITCH, "auto")
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
            f"Triton does not work here ({error}), so its kernels are replaced by plain PyTorch, several times slower; "
            f"`{_SWITCH}=reference` silences this",
            stacklevel=4,
        )
        return None
