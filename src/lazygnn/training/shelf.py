"""The rows that a replayed step reads from a store in page-locked memory, gathered on the device before the step.

A CUDA graph always reads the same memory. The rows that it gathers for the step after it must be known on the device,
since batches come in a new order every epoch.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from lazygnn.history.base import Located, Store
from lazygnn.history.codec import Parts
from lazygnn.history.pinned import PinnedStore, is_same


class Shelf:
    """Device memory for as many rows as the largest batch has; allocates none before the first batch.

    Args:
        store: Keeps all rows, in page-locked memory.

    Attributes:
        num_moves: How often the memory was replaced by a larger one; steps captured before read the old memory.
    """

    def __init__(self, store: PinnedStore) -> None:
        self.num_moves = 0
        self._store = store
        self._parts = store.allocate(0)
        # the rows to gather next, and how many; entries after them are valid rows too, for a kernel that gathers all
        self._next = torch.zeros(0, dtype=torch.int64, device=store.device)
        self._count = torch.zeros((), dtype=torch.int64, device=store.device)
        # the rows on the shelf, and the version of the store that they are copies of
        self._held: Tensor | None = None
        self._version = store.version
        # the rows that the current step gathers
        self._expected: Tensor | None = None

    def fill(self, rows: Tensor) -> None:
        """Gathers these rows, unless the shelf has an up-to-date copy."""
        if not is_same(self._held, rows) or self._version != self._store.version:
            self._grow(len(rows))
            self._store.gather(rows.to(self._store.device, non_blocking=True), self.first(len(rows)))
        self._held, self._version = rows, self._store.version

    def expect(self, rows: Tensor | None) -> None:
        """Sets the rows that the next `refill` gathers; `None` if unknown."""
        # after a failed step, the rows on the shelf are undefined
        self._held, self._expected = None, rows
        num_rows = 0 if rows is None else len(rows)
        self._grow(num_rows)
        if rows is not None:
            self._next[:num_rows].copy_(rows, non_blocking=True)
        self._count.fill_(num_rows)

    def refill(self) -> None:
        """Gathers the expected rows; their indices are read on the device, so that a graph can replay it."""
        self._store.gather(self._next, self._parts, self._count)

    def accept(self) -> None:
        """Records that the step was taken, so that the shelf holds the expected rows."""
        # a replay writes to the store without calling `write`
        self._store.version += 1
        self._held, self._expected, self._version = self._expected, None, self._store.version

    def first(self, num_rows: int) -> Parts:
        """Returns the first rows of the shelf; the next refill overwrites them."""
        assert num_rows <= len(self._next), "these rows were never gathered"
        return {name: part[:num_rows] for name, part in self._parts.items()}

    def _grow(self, num_rows: int) -> None:
        before = len(self._next)
        if num_rows <= before:
            return
        parts = self._store.allocate(num_rows)
        for name, part in self._parts.items():
            # the current step still reads them
            parts[name][:before].copy_(part)
        self._parts, self._next = parts, self._next.new_zeros(num_rows)
        self.num_moves += 1


class ShelvedStore(Store):
    """Replaces a store in a replayed step: reads from a shelf and writes during the computation.

    After a write, it gathers the rows of the next step on the same stream.

    Args:
        store: Keeps all rows.
    """

    def __init__(self, store: PinnedStore) -> None:
        super().__init__(store.parts, store.codec, store.device)
        self.store = store
        self.shelf = Shelf(store)
        # the rows on the shelf, until the step has written
        self._rows: Tensor | None = None
        # tensors that the stream still reads, so that no other tensor gets their memory
        self._lent: list[Tensor] = []

    @contextmanager
    def step(self, rows: Tensor) -> Iterator[None]:
        """Wraps a step that reads these rows, run now or captured; its reads and writes are done when it ends.

        Values that it writes must not change before its end.
        """
        self._rows = rows
        try:
            yield
            if self._rows is not None:
                # nothing was written, but the next step needs its rows
                self.shelf.refill()
            self.flush()
        finally:
            self._rows = None

    def prefetch(self, rows: Tensor) -> None:
        """Starts to gather these rows, unless they are on the shelf."""
        if not is_same(self._rows, rows):
            self.flush()
            self.store.prefetch(rows)

    def read(self, rows: Tensor) -> Tensor:
        """Copies rows from the shelf, or reads them from the store."""
        if not is_same(self._rows, rows):
            self.flush()
            return self.store.read(rows)
        parts = self.shelf.first(len(rows))
        values = self.codec.decode(parts)
        # the values returned must not change with the shelf
        return self.store.allocate(len(rows))["rows"].copy_(values) if values is parts["rows"] else values

    def locate(self, rows: Tensor) -> Located:
        """Returns the rows on the shelf, unless they have to be decoded."""
        if not is_same(self._rows, rows):
            self.flush()
            return self.store.locate(rows)
        if not self.parts["rows"].is_floating_point():
            return Located(self.read(rows), None)
        return Located(self.shelf.first(len(rows))["rows"], None)

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Scatters on the other stream, and gathers the rows of the next step there."""
        self.flush()
        self._rows, self._lent = None, [rows, values]
        # the current stream has read the shelf before this point
        self.store.stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.store.stream):
            self.store.write(rows, values)
            self.shelf.refill()

    def flush(self) -> None:
        """Lets the current stream wait for the other."""
        self.store.flush()
        if self._lent:
            torch.cuda.current_stream(self.device).wait_stream(self.store.stream)
            self._lent = []
