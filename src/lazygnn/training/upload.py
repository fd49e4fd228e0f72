"""Batches from host memory, copied to the device while the batch before them is computed."""

from dataclasses import dataclass

import torch

from lazygnn.batch import Batch


@dataclass(frozen=True)
class _Upload:
    batch: Batch
    copy: Batch
    arrived: torch.cuda.Event


class Uploads:
    """Returns batches on the device; a prefetched one is there already, or being copied.

    At most three are on the device at a time: the one in use, the next one, and the one before it, until its last
    kernel has run. A batch that is on the device from the start, or all of it but its features, is used in place.

    Attributes:
        idle: Whether the last batch was on the device from the start.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.idle = True
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._ahead: _Upload | None = None
        # recorded after the last kernel of the previous batch
        self._done: torch.cuda.Event | None = None

    def prefetch(self, batch: Batch) -> Batch:
        """Starts to copy the batch that comes next; the current stream waits for the copy."""
        if self._stream is None or self._is_here(batch):
            return batch.to(self.device)
        if self._done is not None:
            # otherwise a host that runs ahead of the device would fill its memory with batches
            self._done.synchronize()
        with torch.cuda.stream(self._stream):
            copy = batch.to(self.device)
            self._ahead = _Upload(batch, copy, self._stream.record_event())
        return self._arrive(self._ahead)

    def take(self, batch: Batch) -> Batch:
        """Returns the batch that is computed now."""
        self.idle = self._is_here(batch)
        ahead, self._ahead = self._ahead, None
        if self._stream is not None and not self.idle:
            self._done = torch.cuda.current_stream(self.device).record_event()
        return ahead.copy if ahead is not None and ahead.batch is batch else batch.to(self.device)

    def _is_here(self, batch: Batch) -> bool:
        return {batch.x.device.type, batch.nodes.device.type} == {self.device.type}

    def _arrive(self, upload: _Upload) -> Batch:
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(upload.arrived)
        for tensor in upload.copy.tensors():
            tensor.record_stream(stream)
        return upload.copy
