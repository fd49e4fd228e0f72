"""The one place that multiplies: sparse times dense, a propagation step, aggregation, the sparse first layer."""

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
    "sparse_times_weight",
    "spmm",
    "step",
    "to_tensor",
]


def aggregate(adj: Adjacency, x: Tensor) -> Tensor:
    """`adj @ x`, differentiable in `x`; the matrix is transposed once, in the first backward pass."""
    out: Tensor = _Aggregate.apply(x, adj)  # type: ignore[no-untyped-call]
    return out


def sparse_times_weight(x: Csr, weight: Tensor) -> Tensor:
    """`x @ weight` for sparse features, differentiable in `weight`."""
    out: Tensor = _SparseTimesWeight.apply(weight, x)  # type: ignore[no-untyped-call]
    return out


class _Aggregate(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, adj: Adjacency) -> Tensor:
        ctx.adj = adj
        return spmm(adj, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return spmm(ctx.adj.T, grad.contiguous()), None


class _SparseTimesWeight(Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Csr) -> Tensor:
        ctx.x = x
        return spmm(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return spmm(ctx.x.T, grad.contiguous()), None
