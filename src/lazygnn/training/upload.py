"""Batches from host memory, copied to the device while the batch before them is computed."""

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from lazygnn.batch import Batch


@dataclass(frozen=True)
class _Upload:
    batch: Batch
    copy: Batch
    arrived: torch.cuda.Event


@dataclass(frozen=True)
class _Features:
    batch: Batch
    x: Tensor
    arrived: torch.cuda.Event


class Uploads:
    """Hands batches out on the device; one that was announced is already there, or on its way.

    No more than three lie there at a time: the one in use, the one that comes, and the one before, whose memory is
    free when its last kernel has run. What is there from the start, a batch or all of it but its features, is handed
    out as it is.

    A step that is replayed reads features always in the same place. They come there from a shelf, on which those of the
    next batch are laid while this one is computed; all else of a batch comes as a part of the step.

    Attributes:
        idle: Whether the last batch was there from the start.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.idle = True
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._ahead: _Upload | None = None
        # when the batch before the current one is done with
        self._done: torch.cuda.Event | None = None
        # where replayed steps read the features of a batch
        self._places: WeakKeyDictionary[Batch, Tensor] = WeakKeyDictionary()
        self._room: Tensor | None = None
        self._shelf: Tensor | None = None
        self._laid: _Features | None = None
        self._taken: torch.cuda.Event | None = None

    def announce(self, batch: Batch) -> Batch:
        """Starts to copy the batch that comes next; the current stream waits for the copy."""
        if self._stream is None or self._is_here(batch):
            return batch.to(self.device)
        if self._done is not None:
            # a host that runs ahead of the device would fill it with batches
            self._done.synchronize()
        with torch.cuda.stream(self._stream):
            copy = batch.to(self.device)
            self._ahead = _Upload(batch, copy, self._stream.record_event())
        return self._arrive(self._ahead)

    def take(self, batch: Batch) -> Batch:
        """The batch that is computed now."""
        self.idle = self._is_here(batch)
        ahead, self._ahead = self._ahead, None
        if self._stream is not None and not self.idle:
            self._done = torch.cuda.current_stream(self.device).record_event()
        return ahead.copy if ahead is not None and ahead.batch is batch else batch.to(self.device)

    def stage(self, batch: Batch) -> None:
        """Puts the features of a batch where `bring` finds them: those of the shelf, or from host memory now."""
        if not self._is_staged(batch):
            return
        assert isinstance(batch.x, Tensor)
        place, laid, self._laid = self._place(batch), self._laid, None
        current = torch.cuda.current_stream(self.device)
        if laid is not None and laid.batch is batch:
            current.wait_event(laid.arrived)
            place.copy_(laid.x)
        else:
            place.copy_(batch.x, non_blocking=True)
        self._taken = current.record_event()

    def stage_next(self, batch: Batch) -> None:
        """Starts to lay the features of the batch that comes next on the shelf."""
        if not self._is_staged(batch):
            return
        assert isinstance(batch.x, Tensor)
        assert self._stream is not None
        shelf = _fitting(self._shelf, batch.x, self.device)
        if shelf is not self._shelf:
            # its memory may be what the step under way has let go and still reads
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        elif self._taken is not None:
            self._stream.wait_event(self._taken)
        self._shelf = shelf
        with torch.cuda.stream(self._stream):
            x = shelf[: batch.x.numel()].view_as(batch.x).copy_(batch.x, non_blocking=True)
            self._laid = _Features(batch, x, self._stream.record_event())
        # a larger shelf may take its place while it is written
        shelf.record_stream(self._stream)

    def bring(self, batch: Batch) -> Batch:
        """Copies a batch now, save for what was staged; from page-locked memory a CUDA graph can capture it."""
        x = self._place(batch) if self._is_staged(batch) else None
        if self._stream is None or batch.nodes.is_cuda:
            return (batch if x is None else replace(batch, x=x)).to(self.device)
        return batch.to_with(self.device, self._stream, x)

    def _is_here(self, batch: Batch) -> bool:
        return {batch.x.device.type, batch.nodes.device.type} == {self.device.type}

    def _is_staged(self, batch: Batch) -> bool:
        """Whether there is anything to stage: dense features in host memory."""
        return self._stream is not None and isinstance(batch.x, Tensor) and not batch.x.is_cuda

    def _place(self, batch: Batch) -> Tensor:
        """Where the features of a batch lie while it is computed: the same place at every visit."""
        if batch not in self._places:
            assert isinstance(batch.x, Tensor)
            # where they lay so far belongs to steps that have been captured
            self._room = _fitting(self._room, batch.x, self.device)
            self._places[batch] = self._room[: batch.x.numel()].view_as(batch.x)
        return self._places[batch]

    def _arrive(self, upload: _Upload) -> Batch:
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(upload.arrived)
        for tensor in upload.copy.tensors():
            tensor.record_stream(stream)
        return upload.copy


def _fitting(room: Tensor | None, x: Tensor, device: torch.device) -> Tensor:
    """The room itself if `x` fits into it, or a larger one."""
    if room is not None and room.dtype == x.dtype and room.numel() >= x.numel():
        return room
    return torch.empty(x.numel(), dtype=x.dtype, device=device)
