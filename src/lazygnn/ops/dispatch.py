"""Chooses the code that runs an operation: Triton kernels on an accelerator, plain PyTorch everywhere else.

Python takes longer to launch a Triton kernel than a PyTorch one. A small operation therefore runs in PyTorch, unless it
is captured in a CUDA graph and replayed. The environment variable `LAZYGNN_KERNELS=reference` selects plain PyTorch for
everything; the default is `auto`.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn.errors import ConfigError
from lazygnn.ops import reference
from lazygnn.ops.csr import Csr

_SWITCH = "LAZYGNN_KERNELS"
# Sizes from which a GPU works longer than Python needs to launch a Triton kernel: the entries of an activation, and the
# multiplications of a product, which also needs a plan.
_LARGE = 1 << 27
_LARGE_PRODUCT = 1 << 29
_TRITON_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# A context variable would not work: the backward pass runs in a thread of its own.
_replayed = False


def spmm(matrix: Csr, x: Tensor, halo: Tensor | None = None) -> Tensor:
    """Returns `matrix @ x` for a dense `x`; with a `halo`, its rows follow those of `x`."""
    out: Tensor = _products(matrix, x, halo).spmm(matrix, x, halo)
    return out


def step(
    adj: Csr,
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    weight: float = 1.0,
    previous: Tensor | None = None,
    sign: int = 1,
) -> Tensor:
    """Returns `(1 - alpha) adj @ x + alpha source` on the rows of `adj`; further rows of `x` keep their value.

    With a `weight`, the source is `lerp(previous, source, weight)`, where a missing `previous` counts as zero. With a
    `sign` of -1, the product is subtracted. No argument is modified. On an accelerator the result may be a view of
    wider rows.
    """
    out: Tensor = _products(adj, x, source, previous).step(
        adj, x, source, alpha, weight=weight, previous=previous, sign=sign
    )
    return out


def run_steps(
    adjs: Sequence[Csr],
    x: Tensor,
    source: Tensor,
    alpha: float,
    *,
    weights: Sequence[float] | None = None,
    previous: Tensor | None = None,
    sign: int = 1,
    halo: Tensor | None = None,
) -> Tensor:
    """Takes one step per matrix, each with its weight of the source, and returns the rows of the last matrix.

    Returns `x` if there are no matrices. The source must cover the rows of every matrix. The rows of a `halo` follow
    those of `x` and keep their value; they need not be in memory of their own (`expand`).
    """
    if not adjs:
        return x
    out: Tensor = _products(adjs[0], x, source, previous, halo).run_steps(
        adjs, x, source, alpha, weights=weights, previous=previous, sign=sign, halo=halo
    )
    return out


def norm(matrix: Csr, x: Tensor) -> float:
    """Returns the Frobenius norm of `x`, whose rows belong to those of `matrix`."""
    return float((matrix.products or reference).norm(matrix, x))


def total(matrix: Csr, x: Tensor) -> Tensor:
    """Returns the sum of `x` over all processes that hold rows of `matrix`."""
    out: Tensor = (matrix.products or reference).total(matrix, x)
    return out


def own_rows(matrix: Csr, x: Tensor) -> Tensor:
    """Returns the rows of `x` that belong to the rows of `matrix` in this process; `x` has one for every column."""
    out: Tensor = (matrix.products or reference).own_rows(matrix, x)
    return out


def aggregate(matrix: Csr, x: Tensor) -> Tensor:
    """Returns `matrix @ x`, differentiable in `x`; the first backward pass transposes the matrix once.

    For an adjacency this is the sum over neighbors. For sparse features and a weight it is the first layer.
    """
    out: Tensor = _Aggregate.apply(x, matrix)  # type: ignore[no-untyped-call]
    return out


def activations(x: Tensor) -> ModuleType | None:
    """Returns the module with norms and fused ReLU and dropout for `x`, or None if plain PyTorch should be used."""
    # `torch.compile` fuses these by itself.
    fits = _is_worth_a_launch(x.numel(), _LARGE) and not torch.compiler.is_compiling() and x.is_contiguous()
    if not (fits and _fits_triton(x)) or _triton_products() is None:
        return None
    return import_module("lazygnn.ops.triton.activations")


@contextmanager
def replaying() -> Iterator[None]:
    """Marks the operations inside as captured once and replayed many times in a CUDA graph."""
    global _replayed
    before, _replayed = _replayed, True
    try:
        yield
    finally:
        _replayed = before


def is_replaying() -> bool:
    """Returns whether the current operations will be replayed in a CUDA graph."""
    return _replayed


def history_rows(*tensors: Tensor) -> ModuleType | None:
    """Returns the module that gathers and scatters history rows like these, or None for plain PyTorch."""
    if _needs_grad(*tensors) or not _fits_triton(*tensors) or _triton_products() is None:
        return None
    return import_module("lazygnn.ops.triton.history_rows")


def host_rows(table: Tensor) -> ModuleType:
    """Returns the module that copies rows from and to a table in host memory that the device addresses directly."""
    fits = table.is_cuda and _is_triton_allowed() and _triton_products() is not None
    return import_module("lazygnn.ops.triton.host_rows") if fits else reference


def describe_kernels() -> str:
    """Describes which kernels run on a GPU here, and why Triton is not used if it is not."""
    if not _is_triton_allowed():
        return f"plain PyTorch, since {_SWITCH}=reference"
    if not torch.cuda.is_available():
        return "plain PyTorch, since there is no GPU"
    return "plain PyTorch, since Triton does not work here" if _triton_products() is None else "Triton"


class _Aggregate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Csr) -> Tensor:
        ctx.matrix = matrix
        return spmm(matrix, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return spmm(ctx.matrix.T, grad.contiguous()), None


def _products(matrix: Csr, *operands: Tensor | None) -> ModuleType:
    """Returns the module that multiplies these operands."""
    if matrix.products is not None:
        return cast(ModuleType, matrix.products)
    tensors = [matrix.value, *(operand for operand in operands if operand is not None)]
    pays = _is_worth_a_launch(len(matrix.col) * tensors[1].shape[1], _LARGE_PRODUCT)
    # The Triton products do not define a gradient.
    fits = pays and not _needs_grad(*tensors) and _fits_triton(*tensors)
    return (_triton_products() if fits else None) or reference


def _is_worth_a_launch(work: int, enough: int) -> bool:
    """Returns whether a Triton kernel pays for its launch: with enough work, or if it is replayed."""
    return work >= enough or (work > 0 and _replayed)


def _needs_grad(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _fits_triton(*tensors: Tensor) -> bool:
    return all(tensor.is_cuda and tensor.dtype in _TRITON_DTYPES for tensor in tensors) and _is_triton_allowed()


def _is_triton_allowed() -> bool:
    choice = os.environ.get(_SWITCH, "auto")
    if choice not in ("auto", "reference"):
        raise ConfigError(f"`{_SWITCH}` must be `auto` or `reference`, got `{choice}`")
    return choice == "auto"


@cache
def _triton_products() -> ModuleType | None:
    """Returns the module of Triton products, or None if Triton does not work."""
    try:
        # Fails without a driver, or without the compiler that Triton's launcher needs.
        import_module("triton").runtime.driver.active.get_current_target()
        return import_module("lazygnn.ops.triton.products")
    except Exception as error:
        warnings.warn(
            f"Triton does not work here ({error}); plain PyTorch is used instead, which is several times slower; "
            f"set `{_SWITCH}=reference` to silence this warning",
            stacklevel=4,
        )
        return None
