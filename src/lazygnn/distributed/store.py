"""The rows of a history that this rank owns, and copies of the rows around its parts.

`K` own rows, `H` rows around the parts, `C` channels.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lazygnn.distributed.memory import drop_pages
from lazygnn.history.base import Located, Store
from lazygnn.history.codec import Codec, Parts
from lazygnn.history.device import DeviceStore


class ShardedStore(DeviceStore):
    """Own rows come first, then the rows around the parts, which an exchange replaces.

    Only own rows are written, and no part reads an own row of another part: it reads the copy. What a step writes is
    therefore seen by other parts in the next step, on whichever rank they are.

    Args:
        codec: How a row is stored.
        channels: Number of columns.
        num_rows: Number of own rows.
        num_slots: Number of rows around the parts.
        device: The compute device.
        wait: Called before a read, to complete an exchange that is under way.
    """

    def __init__(
        self,
        codec: Codec,
        channels: int,
        num_rows: int,
        num_slots: int,
        device: torch.device,
        wait: Callable[[], None],
    ) -> None:
        layout = codec.layout(num_rows + num_slots, channels)
        self._tables = {name: torch.zeros(shape, dtype=dtype, device=device) for name, (shape, dtype) in layout.items()}
        super().__init__({name: table[:num_rows] for name, table in self._tables.items()}, codec, device)
        self._wait = wait

    def read(self, rows: Tensor) -> Tensor:
        """Gathers own rows and copies."""
        self._wait()
        return self.codec.decode({name: table.index_select(0, rows) for name, table in self._tables.items()})

    def locate(self, rows: Tensor) -> Located:
        """Returns the whole table and the rows in it, unless rows have to be decoded."""
        self._wait()
        table = self._tables["rows"]
        return Located(table, rows) if table.is_floating_point() else Store.locate(self, rows)

    def encode(self, rows: Tensor, wire: Codec) -> Parts:
        """Returns own rows as they are sent."""
        stored = {name: part.index_select(0, rows) for name, part in self.parts.items()}
        return stored if wire == self.codec else wire.encode(self.codec.decode(stored))

    def drop_copies(self) -> None:
        """Returns the memory of the copies to the system; none is read before the next exchange replaces it."""
        for table in self._tables.values():
            drop_pages(table[self.num_rows :])

    def receive(self, slots: Tensor, parts: Parts, wire: Codec) -> None:
        """Replaces copies by rows that were sent."""
        stored = parts if wire == self.codec else self.codec.encode(wire.decode(parts))
        index = slots.long()
        for name, table in self._tables.items():
            table[self.num_rows :].index_copy_(0, index, stored[name])
