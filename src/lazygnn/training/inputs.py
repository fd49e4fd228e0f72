"""Batches in host memory, brought to the device for steps that are replayed.

A CUDA graph always reads the features of its batch from the same memory. They are copied there from a buffer, which is
filled during the previous step. Everything else of a batch is copied as a part of the step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lazygnn.batch import Batch, tensors_of
from lazygnn.ops import Adjacency


@dataclass(frozen=True)
class _Features:
    batch: Batch
    x: Tensor
    arrived: torch.cuda.Event


class StepInputs:
    """Holds the features of the batch that is computed and of the one after it.

    Only dense features in host memory are copied; features on the device are used in place.

    Args:
        device: The compute device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        # where replayed steps read the features of a batch
        self._places: WeakKeyDictionary[Batch, Tensor] = WeakKeyDictionary()
        self._memory: Tensor | None = None
        # features of the batch that comes next
        self._buffer: Tensor | None = None
        self._ahead: _Features | None = None
        self._taken: torch.cuda.Event | None = None

    def put(self, batch: Batch) -> None:
        """Copies the features of a batch, from the buffer or host memory, to the memory that its step reads."""
        if not self._is_held(batch):
            return
        assert isinstance(batch.x, Tensor)
        place, ahead, self._ahead = self._place(batch), self._ahead, None
        current = torch.cuda.current_stream(self._device)
        if ahead is not None and ahead.batch is batch:
            current.wait_event(ahead.arrived)
            place.copy_(ahead.x)
        else:
            place.copy_(batch.x, non_blocking=True)
        self._taken = current.record_event()

    def fetch(self, batch: Batch) -> None:
        """Starts to copy the features of the batch that comes next into the buffer."""
        if not self._is_held(batch):
            return
        assert isinstance(batch.x, Tensor)
        assert self._stream is not None
        buffer = _fitting(self._buffer, batch.x, self._device)
        if buffer is not self._buffer:
            # the current step may have freed its memory and still read it
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
        elif self._taken is not None:
            self._stream.wait_event(self._taken)
        self._buffer = buffer
        with torch.cuda.stream(self._stream):
            x = buffer[: batch.x.numel()].view_as(batch.x).copy_(batch.x, non_blocking=True)
            self._ahead = _Features(batch, x, self._stream.record_event())
        # a larger buffer may replace it while it is written
        buffer.record_stream(self._stream)

    def bring(self, batch: Batch) -> Batch:
        """Copies a batch now, except for its features; a CUDA graph can capture it from page-locked memory."""
        x = self._place(batch) if self._is_held(batch) else None
        if self._stream is None or batch.nodes.is_cuda:
            return (batch if x is None else replace(batch, x=x)).to(self._device)
        return _copy_beside(batch, self._device, self._stream, x)

    def join(self, batch: Batch) -> None:
        """Lets the current stream wait for the copies of a brought batch, also those that its step did not read."""
        if isinstance(batch.adjs, _Arriving):
            batch.adjs.wait()

    def _is_held(self, batch: Batch) -> bool:
        return self._stream is not None and isinstance(batch.x, Tensor) and not batch.x.is_cuda

    def _place(self, batch: Batch) -> Tensor:
        """Returns the memory of a batch's features, the same at every visit."""
        if batch not in self._places:
            assert isinstance(batch.x, Tensor)
            # captured steps keep the memory that they were captured with
            self._memory = _fitting(self._memory, batch.x, self._device)
            self._places[batch] = self._memory[: batch.x.numel()].view_as(batch.x)
        return self._places[batch]


@dataclass(frozen=True, eq=False)
class _Arriving(Sequence[Adjacency]):
    """Matrices that are being copied; the stream that first reads one waits for all."""

    adjs: list[Adjacency]
    arrived: torch.cuda.Event

    def __len__(self) -> int:
        return len(self.adjs)

    @overload
    def __getitem__(self, index: int) -> Adjacency: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Adjacency]: ...
    def __getitem__(self, index: int | slice) -> Adjacency | Sequence[Adjacency]:
        self.wait()
        return self.adjs[index]

    def wait(self) -> None:
        torch.cuda.current_stream(self.adjs[0].device).wait_event(self.arrived)


def _copy_beside(batch: Batch, device: torch.device, stream: torch.cuda.Stream, x: Tensor | None) -> Batch:
    """Copies a batch; its matrices are copied on another stream, while the features are transformed.

    `x` is the features, if they are on the device already.
    """
    near = replace(batch, adjs=[], x=batch.x if x is None else x.new_empty(0, device="cpu")).to(device)
    near = near if x is None else replace(near, x=x)
    if not batch.adjs:
        return near
    # allocated on the current stream, which waits for the copies before it reads or frees them
    copies = {id(adj): adj.map(lambda part: torch.empty_like(part, device=device)) for adj in batch.adjs}
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for adj in {id(adj): adj for adj in batch.adjs}.values():
            for part, copy in zip(tensors_of(adj), tensors_of(copies[id(adj)]), strict=True):
                copy.copy_(part, non_blocking=True)
    return replace(near, adjs=_Arriving([copies[id(adj)] for adj in batch.adjs], stream.record_event()))


def _fitting(memory: Tensor | None, x: Tensor, device: torch.device) -> Tensor:
    """Returns `memory` if `x` fits into it, otherwise newly allocated memory."""
    if memory is not None and memory.dtype == x.dtype and memory.numel() >= x.numel():
        return memory
    return torch.empty(x.numel(), dtype=x.dtype, device=device)
