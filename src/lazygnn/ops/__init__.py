"""Sparse matrices and the operations on them: products, propagation steps, activations and rows of histories.

`reference` defines the correct results in plain PyTorch. `dispatch` chooses the code that runs.
"""

from lazygnn.ops.csr import Adjacency, Csr, find_device, index_dtype, row_chunks, to_tensor
from lazygnn.ops.device import choose_device
from lazygnn.ops.dispatch import (
    activations,
    aggregate,
    describe_kernels,
    history_rows,
    host_rows,
    is_replaying,
    norm,
    own_rows,
    replaying,
    run_steps,
    spmm,
    step,
    total,
)
from lazygnn.ops.dropout import dropout_

__all__ = [
    "Adjacency",
    "Csr",
    "activations",
    "aggregate",
    "choose_device",
    "describe_kernels",
    "dropout_",
    "find_device",
    "history_rows",
    "host_rows",
    "index_dtype",
    "is_replaying",
    "norm",
    "own_rows",
    "replaying",
    "row_chunks",
    "run_steps",
    "spmm",
    "step",
    "to_tensor",
    "total",
]
