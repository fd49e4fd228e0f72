"""The products of the library in plain PyTorch: the definition of correct."""

import torch
from torch import Tensor

from lazygnn.ops.csr import Csr


def spmm(matrix: Csr, x: Tensor) -> Tensor:
    """`matrix @ x` for a dense `x`."""
    out: Tensor = torch.sparse.mm(matrix.tensor, x, "sum") if _rows_in_parallel(x) else torch.mm(matrix.tensor, x)
    return out


def step(adj: Csr, x: Tensor, source: Tensor, alpha: float) -> Tensor:
    """`(1 - alpha) adj @ x + alpha source` on the rows of `adj`; the rows of `x` below them keep their value."""
    rows = adj.num_rows
    if _rows_in_parallel(x):
        out = torch.sparse.mm(adj.tensor, x, "sum").mul_(1 - alpha).add_(source[:rows], alpha=alpha)
    else:
        out = torch.addmm(source[:rows], adj.tensor, x, beta=alpha, alpha=1 - alpha)
    return out if rows == len(x) else torch.cat((out, x[rows:]))


def _rows_in_parallel(x: Tensor) -> bool:
    # without MKL (ARM, for one) torch's CSR `addmm` runs on a single core; the reducing product uses all of them.
    return x.device.type == "cpu" and not bool(torch.backends.mkl.is_available())
