"""The rows of one batch, laid out on the compute device for a step that is replayed.

A CUDA graph always reads in the same place, and which rows it puts there for the step after it must be known on the
device: batches come in a new order every epoch.
"""

import torch
from torch import Tensor

from lazygnn import ops
from lazygnn.history.codec import Parts


class Shelf:
    """Room for as many rows as the largest batch has; takes none before the first batch.

    Args:
        table: All rows, in page-locked host memory.
        device: The compute device.

    Attributes:
        num_moves: How often the room was replaced by a larger one; what was captured before reads in a wrong place.
    """

    def __init__(self, table: Parts, device: torch.device) -> None:
        self.num_moves = 0
        self._table, self._device = table, device
        self._room = make_room(table, 0)
        # the rows that come next, and how many; those behind them are rows as well, for who gathers all
        self._next = torch.zeros(0, dtype=torch.int64, device=device)
        self._count = torch.zeros((), dtype=torch.int64, device=device)
        # indices of what lies here, and of what will once the step at hand is taken
        self._held: Tensor | None = None
        self._announced: Tensor | None = None

    def stage(self, rows: Tensor) -> None:
        """Makes sure that these very rows lie here, all writes landed."""
        if not is_same(self._held, rows):
            self._grow(len(rows))
            gather(self._table, rows.to(self._device, non_blocking=True), self.first(len(rows)))
        self._held = rows

    def announce(self, rows: Tensor | None) -> None:
        """Says which rows the next `refill` is for."""
        # there is no telling what a step leaves here that fails halfway
        self._held, self._announced = None, rows
        num_rows = 0 if rows is None else len(rows)
        self._grow(num_rows)
        if rows is not None:
            self._next[:num_rows].copy_(rows, non_blocking=True)
        self._count.fill_(num_rows)

    def refill(self) -> None:
        """Gathers what was announced; reads the announcement on the device, so that a graph can replay it."""
        gather(self._table, self._next, self._room, self._count)

    def advance(self) -> None:
        """Says that the step is taken: what was announced lies here."""
        self._held, self._announced = self._announced, None

    def forget(self) -> None:
        """Says that rows have changed since they were laid out."""
        self._held = self._announced = None

    def first(self, num_rows: int) -> Parts:
        """What lies here for the first rows that were staged; the next refill overwrites it."""
        assert num_rows <= len(self._next), "these rows were never staged"
        return {name: part[:num_rows] for name, part in self._room.items()}

    def _grow(self, num_rows: int) -> None:
        before = len(self._next)
        if num_rows <= before:
            return
        room = make_room(self._table, num_rows)
        for name, part in self._room.items():
            # the step at hand still reads them
            room[name][:before].copy_(part)
        self._room, self._next = room, self._next.new_zeros(num_rows)
        self.num_moves += 1


def make_room(table: Parts, num_rows: int) -> Parts:
    """Memory on the device for so many rows of a table."""
    return {name: ops.far_rows(part).room(num_rows, part) for name, part in table.items()}


def gather(table: Parts, rows: Tensor, room: Parts, count: Tensor | None = None) -> None:
    """Copies rows of a table into room for them; with a `count` on the device, no more than the first of them."""
    for name, part in table.items():
        ops.far_rows(part).gather(part, rows, room[name], count)


def is_same(one: Tensor | None, other: Tensor) -> bool:
    """Whether these are the same indices in the same place; to look at them would wait for the device."""
    return one is not None and (one.data_ptr(), one.shape) == (other.data_ptr(), other.shape)
