"""Rows in page-locked host memory, which an accelerator reads and writes directly over the bus.

No thread takes part, so a pass over such rows can be captured in a CUDA graph. Rows start a multiple of 16 bytes apart;
otherwise gathering them takes 1.5 times as long.
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
    # keeps the indices alive, so that no other tensor gets their address
    rows: Tensor
    parts: Parts
    arrived: torch.cuda.Event


class PinnedStore(DeviceStore):
    """Gathers and scatters in place, over the bus; prefetched rows are gathered during the computation.

    Args:
        parts: From `map_pinned`.
        codec: How a row is stored.
        device: The compute device.

    Attributes:
        stream: The CUDA stream of copies that run during the computation.
        version: Increases with every write and load, so that outdated copies of rows are recognized.
    """

    def __init__(self, parts: Parts, codec: Codec, device: torch.device) -> None:
        super().__init__(parts, codec, device)
        self.stream = torch.cuda.Stream(device)
        self.version = 0
        self._fetch: _Fetch | None = None

    def prefetch(self, rows: Tensor) -> None:
        """Starts to gather these rows and drops rows that were prefetched before."""
        current = torch.cuda.current_stream(self.device)
        # allocated on the current stream, which waits for the gathering before it reads or frees them
        parts = self.allocate(len(rows))
        self.flush()
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            self.gather(rows, parts)
            self._fetch = _Fetch(rows, parts, self.stream.record_event())

    def read(self, rows: Tensor) -> Tensor:
        """Returns the prefetched rows, or gathers them now."""
        parts = self._take(rows)
        if parts is None:
            parts = self.allocate(len(rows))
            self.gather(rows.to(self.device), parts)
        return self.codec.decode(parts)

    def locate(self, rows: Tensor) -> Located:
        """Returns a copy, as `read` does; prefetched rows keep their stored type."""
        taken = self._take(rows) if self.parts["rows"].is_floating_point() else None
        return Located(self.read(rows) if taken is None else taken["rows"], None)

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Scatters on the current stream and drops prefetched rows."""
        self.flush()
        self.version += 1
        super().write(rows, values)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copies the tensors of `state` into this store."""
        self.version += 1
        super().load(state)

    def flush(self) -> None:
        """Lets the current stream wait for the prefetched rows, which are dropped."""
        if self._fetch is not None:
            torch.cuda.current_stream(self.device).wait_event(self._fetch.arrived)
            self._fetch = None

    def writable(self) -> Tensor | None:
        """Returns `None`, since a kernel that also computes does not saturate the bus."""
        return None

    @property
    def num_bytes(self) -> int:
        """Returns the bytes of the stored rows and of the padding between them."""
        return sum(part.untyped_storage().nbytes() for part in self.parts.values())

    def allocate(self, num_rows: int) -> Parts:
        """Allocates uninitialized device memory for `num_rows` rows."""
        return {name: ops.host_rows(part).allocate_rows(num_rows, part) for name, part in self.parts.items()}

    def gather(self, rows: Tensor, out: Parts, count: Tensor | None = None) -> None:
        """Copies rows, as they are stored, into memory from `allocate`.

        With a `count` on the device, rows after the first `count` are undefined.
        """
        for name, part in self.parts.items():
            ops.host_rows(part).gather(part, rows, out[name], count)

    def _scatter(self, rows: Tensor, parts: Mapping[str, Tensor]) -> None:
        for name, part in self.parts.items():
            ops.host_rows(part).scatter(part, rows, parts[name])

    def _take(self, rows: Tensor) -> Parts | None:
        """Returns the prefetched rows if their indices are `rows`, otherwise `None`."""
        fetch = self._fetch
        self.flush()
        return fetch.parts if fetch is not None and is_same(fetch.rows, rows) else None


def is_same(one: Tensor | None, other: Tensor) -> bool:
    """Returns whether both are the same indices in the same memory; comparing contents would synchronize."""
    return one is not None and (one.data_ptr(), one.shape) == (other.data_ptr(), other.shape)


class _Span:
    """Page-locked bytes as an object of the CUDA array interface."""

    def __init__(self, memory: Tensor) -> None:
        # a tensor over these bytes keeps this object alive, and this object keeps the memory alive
        self.memory = memory
        self.__cuda_array_interface__ = {
            "data": (memory.data_ptr(), False),
            "shape": (memory.nbytes,),
            "typestr": "|u1",
            "strides": None,
            "version": 2,
        }


def map_pinned(layout: Layout, device: torch.device) -> Parts:
    """Allocates zeros in page-locked host memory, one tensor for each part, addressed as device memory."""
    parts = {}
    for name, (shape, dtype) in layout.items():
        memory = torch.zeros(_apart(shape, dtype), dtype=dtype, pin_memory=True)
        mapped = torch.as_tensor(_Span(memory), device=device).view(dtype).view(memory.shape)
        assert mapped.data_ptr() == memory.data_ptr()
        parts[name] = mapped[..., : shape[-1]]
    return parts


def _apart(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[int, ...]:
    """Returns the shape with rows padded to a multiple of 16 bytes; a part of one number a row stays dense."""
    if len(shape) == 1:
        return shape
    unit = _BYTES // dtype.itemsize
    return *shape[:-1], -(-shape[-1] // unit) * unit
