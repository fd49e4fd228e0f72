"""Rows in page-locked host memory, which an accelerator reads and writes over the bus by itself.

No thread takes part and nothing is staged, so a pass over such rows can be captured in a CUDA graph. Rows lie a
multiple of 16 bytes apart; else it takes half as long again to gather them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.history.base import Located
from lazygnn.history.codec import Codec, Layout, Parts
from lazygnn.history.device import DeviceStore

_BYTES = 16


@dataclass(frozen=True)
class _Fetch:
    # keeps the indices alive, so that no other tensor takes their address
    rows: Tensor
    parts: Parts
    arrived: torch.cuda.Event


class PinnedStore(DeviceStore):
    """Gathers and scatters in place, over the bus; what is prefetched is gathered beside the computation.

    Args:
        parts: From `map_pinned`.
        codec: How a row is kept.
        device: The compute device.
    """

    def __init__(self, parts: Parts, codec: Codec, device: torch.device) -> None:
        super().__init__(parts, codec, device)
        self._stream = torch.cuda.Stream(device)
        self._fetch: _Fetch | None = None

    def prefetch(self, rows: Tensor) -> None:
        """Starts to gather these rows, in place of what was prefetched before."""
        current = torch.cuda.current_stream(self.device)
        # made on the current stream, which waits for the gathering before it reads or frees them
        room = self._room(len(rows))
        self._settle()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            self._gather(rows, room)
            self._fetch = _Fetch(rows, room, self._stream.record_event())

    def read(self, rows: Tensor) -> Tensor:
        """Takes what was prefetched, or gathers now."""
        parts = self._take(rows)
        if parts is None:
            parts = self._room(len(rows))
            self._gather(rows.to(self.device), parts)
        return self.codec.decode(parts)

    def locate(self, rows: Tensor) -> Located:
        """Takes what was prefetched, or gathers now: a kernel that also computes uses the bus badly."""
        fetched = self._take(rows) if self.parts["rows"].is_floating_point() else None
        return Located(self.read(rows) if fetched is None else fetched["rows"], None)

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Scatters; what was prefetched is outdated."""
        self._settle()
        super().write(rows, values)

    def writable(self) -> Tensor | None:
        """Nothing, for the same reason."""
        return None

    @property
    def num_bytes(self) -> int:
        """Bytes kept, and those between the rows."""
        return sum(part.untyped_storage().nbytes() for part in self.parts.values())

    def _room(self, num_rows: int) -> Parts:
        return {name: ops.far_rows(part).room(num_rows, part) for name, part in self.parts.items()}

    def _gather(self, rows: Tensor, room: Parts) -> None:
        for name, part in self.parts.items():
            ops.far_rows(part).gather(part, rows, room[name])

    def _scatter(self, rows: Tensor, parts: Mapping[str, Tensor]) -> None:
        for name, part in self.parts.items():
            ops.far_rows(part).scatter(part, rows, parts[name])

    def _take(self, rows: Tensor) -> Parts | None:
        """What was prefetched, if these are the rows."""
        fetch = self._fetch
        self._settle()
        if fetch is None or (fetch.rows.data_ptr(), fetch.rows.shape) != (rows.data_ptr(), rows.shape):
            return None
        return fetch.parts

    def _settle(self) -> None:
        if self._fetch is not None:
            torch.cuda.current_stream(self.device).wait_event(self._fetch.arrived)
            self._fetch = None


class _Span:
    """Page-locked bytes in the form in which CUDA libraries hand memory to each other."""

    def __init__(self, memory: Tensor) -> None:
        # whoever reads the bytes keeps this object, and this object keeps the memory
        self.memory = memory
        self.__cuda_array_interface__ = {
            "data": (memory.data_ptr(), False),
            "shape": (memory.nbytes,),
            "typestr": "|u1",
            "strides": None,
            "version": 2,
        }


def map_pinned(layout: Layout, device: torch.device) -> Parts:
    """Zeros in page-locked host memory, one tensor for each part, as the device sees them."""
    parts = {}
    for name, (shape, dtype) in layout.items():
        memory = torch.zeros(_apart(shape, dtype), dtype=dtype, pin_memory=True)
        seen = torch.as_tensor(_Span(memory), device=device).view(dtype).view(memory.shape)
        assert seen.data_ptr() == memory.data_ptr()
        parts[name] = seen[..., : shape[-1]]
    return parts


def _apart(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[int, ...]:
    """The shape with rows of a multiple of 16 bytes; single numbers stay together."""
    if len(shape) == 1:
        return shape
    unit = _BYTES // dtype.itemsize
    return *shape[:-1], -(-shape[-1] // unit) * unit
