"""Copies between host memory and the compute device that the compute stream does not wait for."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lazygnn.history.codec import Parts

Wait = Callable[[], None]


class Transfer(ABC):
    """Starts copies and returns a function that waits for them."""

    @abstractmethod
    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Allocates host memory to copy from."""

    @abstractmethod
    def to_host(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Wait]:
        """Starts copies to the host, after the compute stream has computed `tensors`; the host waits for them."""

    @abstractmethod
    def to_device(self, parts: Parts) -> tuple[Parts, Wait]:
        """Starts copies to the device; the compute stream waits for them, the host does not."""


class CudaTransfer(Transfer):
    """Copies through pinned memory, on one stream for each direction.

    A buffer may be freed during a copy: torch reuses pinned memory after the copies that use it, and device memory
    after the streams that it was recorded on.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._down = torch.cuda.Stream(device)
        self._up = torch.cuda.Stream(device)

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Allocates pinned memory."""
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def to_host(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Wait]:
        """Copies after all work that was queued on the current stream before."""
        # a thread that waits for this event sleeps instead of spinning
        arrived = torch.cuda.Event(blocking=True)
        self._down.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._down):
            copies = [self.empty(t.shape, t.dtype).copy_(t, non_blocking=True) for t in tensors]
            arrived.record()
        for tensor in tensors:
            if tensor.is_cuda:
                tensor.record_stream(self._down)
        return copies, arrived.synchronize

    def to_device(self, parts: Parts) -> tuple[Parts, Wait]:
        """Copies at once."""
        arrived = torch.cuda.Event()
        with torch.cuda.stream(self._up):
            copies = {name: part.to(self.device, non_blocking=True) for name, part in parts.items()}
            arrived.record()

        def wait() -> None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(arrived)
            for copy in copies.values():
                copy.record_stream(stream)

        return copies, wait
