"""The one place that multiplies: sparse times dense, a propagation step, aggregation."""

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from lazygnn.ops.csr import Adjacency, Csr, index_dtype, row_chunks, to_tensor
from lazygnn.ops.reference import spmm, step

__all__ = [
    "Adjacency",
    "Csr",
    "aggregate",
    "index_dtype",
    "row_chunks",
    "spmm",
    "step",
    "to_tensor",
]


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
