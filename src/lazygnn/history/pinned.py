"""Rows in page-locked host memory, which an accelerator reads and writes over the bus by itself.

No thread takes part, so a pass over such rows can be captured in a CUDA graph. A step that is replayed finds its rows
on a shelf, and gathers those of the step after it as soon as its own are written, beside the backward pass. Rows lie a
multiple of 16 bytes apart; else it takes half as long again to gather them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.history.base import Located
from lazygnn.history.codec import Codec, Layout, Parts
from lazygnn.history.device import DeviceStore
from lazygnn.history.shelf import Shelf, gather, is_same, make_room

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

    copies_at_once = False

    def __init__(self, parts: Parts, codec: Codec, device: torch.device) -> None:
        super().__init__(parts, codec, device)
        self._stream = torch.cuda.Stream(device)
        self._fetch: _Fetch | None = None
        self._shelf = Shelf(parts, device)
        # within a step that is replayed: its rows, until it has written
        self._is_replayed = False
        self._shelved: Tensor | None = None
        # what the stream still reads, so that no other tensor takes its memory
        self._lent: list[Tensor] = []

    def prefetch(self, rows: Tensor) -> None:
        """Starts to gather these rows, in place of what was prefetched before, unless they are on the shelf."""
        if is_same(self._shelved, rows):
            return
        current = torch.cuda.current_stream(self.device)
        # made on the current stream, which waits for the gathering before it reads or frees them
        room = make_room(self.parts, len(rows))
        self._settle()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            gather(self.parts, rows, room)
            self._fetch = _Fetch(rows, room, self._stream.record_event())

    def read(self, rows: Tensor) -> Tensor:
        """Takes what was prefetched or is on the shelf, or gathers now."""
        parts = self._take(rows)
        if parts is None:
            parts = make_room(self.parts, len(rows))
            gather(self.parts, rows.to(self.device), parts)
        values = self.codec.decode(parts)
        # what is handed out must not change with the shelf
        shared = is_same(self._shelved, rows) and values is parts["rows"]
        return make_room(self.parts, len(rows))["rows"].copy_(values) if shared else values

    def locate(self, rows: Tensor) -> Located:
        """As `read`, but what is on the shelf is read there."""
        taken = self._take(rows) if self.parts["rows"].is_floating_point() else None
        return Located(self.read(rows) if taken is None else taken["rows"], None)

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Scatters; what was prefetched is outdated."""
        if self._is_replayed:
            self._write_aside(rows, values)
            return
        self._settle()
        self._shelf.forget()
        super().write(rows, values)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copies what `state` gave into this store; what is on the shelf is outdated."""
        self._settle()
        self._shelf.forget()
        super().load(state)

    def stage(self, rows: Tensor) -> None:
        """Lays these rows on the shelf, unless they were announced before the last step."""
        self._settle()
        self._shelf.stage(rows)

    def announce(self, rows: Tensor | None) -> None:
        """Says which rows the step gathers for the one after it."""
        self._shelf.announce(rows)

    def advance(self) -> None:
        """Says that the step was taken."""
        self._shelf.advance()

    @contextmanager
    def staged(self, rows: Tensor) -> Iterator[None]:
        """Reads from the shelf and writes beside the computation; both are done when the step ends."""
        self._is_replayed, self._shelved = True, rows
        try:
            yield
            if self._shelved is not None:
                # nothing was written, but what comes next is awaited
                self._shelf.refill()
            self._settle()
        finally:
            self._is_replayed, self._shelved = False, None

    @property
    def num_moves(self) -> int:
        """How often the shelf has moved."""
        return self._shelf.num_moves

    def writable(self) -> Tensor | None:
        """Nothing: a kernel that also computes uses the bus badly."""
        return None

    @property
    def num_bytes(self) -> int:
        """Bytes kept, and those between the rows."""
        return sum(part.untyped_storage().nbytes() for part in self.parts.values())

    def _scatter(self, rows: Tensor, parts: Mapping[str, Tensor]) -> None:
        for name, part in self.parts.items():
            ops.far_rows(part).scatter(part, rows, parts[name])

    def _write_aside(self, rows: Tensor, values: Tensor) -> None:
        """Scatters on the other stream, and gathers there what the next step reads."""
        self._settle()
        self._shelved, self._lent = None, [rows, values]
        # which has also read what is on the shelf when it comes this far
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            super().write(rows, values)
            self._shelf.refill()

    def _take(self, rows: Tensor) -> Parts | None:
        """What is on the shelf or was prefetched, if these are the rows."""
        if is_same(self._shelved, rows):
            return self._shelf.first(len(rows))
        fetch = self._fetch
        self._settle()
        return fetch.parts if fetch is not None and is_same(fetch.rows, rows) else None

    def _settle(self) -> None:
        """Lets the current stream wait for the other."""
        current = torch.cuda.current_stream(self.device)
        if self._fetch is not None:
            current.wait_event(self._fetch.arrived)
            self._fetch = None
        if self._lent:
            current.wait_stream(self._stream)
            self._lent = []


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
