"""Rows on the compute device itself: the fastest place while they fit."""

import torch
from torch import Tensor

from lazygnn.history.base import Store


class DeviceStore(Store):
    """One tensor on the device."""

    def __init__(
        self, num_rows: int, channels: int, *, dtype: torch.dtype, device: torch.device, compute_dtype: torch.dtype
    ) -> None:
        self.num_rows, self.channels = num_rows, channels
        self.compute_dtype = compute_dtype
        self.rows = torch.zeros(num_rows, channels, dtype=dtype, device=device)

    def read(self, rows: Tensor) -> Tensor:
        """Gathers."""
        return self.rows[rows].to(self.compute_dtype)

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Scatters."""
        self.rows[rows] = values.to(self.rows.dtype)

    @property
    def num_bytes(self) -> int:
        """Bytes of the tensor."""
        return self.rows.nbytes

    def state(self) -> dict[str, Tensor]:
        """The tensor."""
        return {"rows": self.rows}
