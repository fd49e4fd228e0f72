"""Histories: what earlier training steps have already propagated."""

import torch

from lazygnn.history.base import History, NoHistory, Store, StoredHistory, pad_rows
from lazygnn.history.device import DeviceStore
from lazygnn.warmstart import WarmStart

__all__ = ["History", "NoHistory", "Store", "StoredHistory", "open_history", "pad_rows"]


def open_history(
    num_nodes: int,
    channels: int,
    start: WarmStart,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    compute_dtype: torch.dtype = torch.float32,
) -> StoredHistory:
    """Opens an empty history for every node of a graph.

    Args:
        num_nodes: Number of rows.
        channels: Width of what is propagated.
        start: The warm start; `Drift` keeps a second tensor with the inputs of the last visit.
        dtype: Type the rows are kept in.
        device: The compute device.
        compute_dtype: Type the rows are handed out in.
    """

    def store() -> Store:
        return DeviceStore(num_nodes, channels, dtype=dtype, device=torch.device(device), compute_dtype=compute_dtype)

    return StoredHistory(start, store(), store() if start.keeps_inputs else None)
