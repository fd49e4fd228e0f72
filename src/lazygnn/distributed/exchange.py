"""Brings the stored rows around the parts of this rank from the ranks that own them, once a step.

The rows of all histories of a node travel together, as one record of bytes. The exchange starts before a step computes
anything, and the first read of a history waits for it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from lazygnn.distributed.group import Ranks
from lazygnn.distributed.plan import Plan
from lazygnn.distributed.store import ShardedStore
from lazygnn.distributed.traffic import Traffic
from lazygnn.history import Store
from lazygnn.history.codec import Codec, Parts


@dataclass(frozen=True)
class _Flight:
    plan: Plan
    # kept until they have arrived
    sent: Tensor
    received: Tensor
    wait: Callable[[], object]


class Exchange:
    """Makes the stores of histories and keeps their copies of other rows up to date.

    Args:
        ranks: All ranks.
        num_rows: Number of own rows.
        num_slots: Number of rows around the parts.
        device: The compute device.
        wire: Type of the rows that are sent; rows that are stored in fewer bits are sent as they are.
        traffic: Counts bytes and waits.
    """

    def __init__(
        self,
        ranks: Ranks,
        num_rows: int,
        num_slots: int,
        device: torch.device,
        *,
        wire: torch.dtype = torch.float32,
        traffic: Traffic,
    ) -> None:
        self.ranks, self.traffic = ranks, traffic
        self.num_rows, self.num_slots, self.device, self.wire = num_rows, num_slots, device, wire
        self._stores: list[ShardedStore] = []
        self._flight: _Flight | None = None

    def make_store(self, codec: Codec, channels: int, with_halo: bool) -> Store:
        """Makes a store; with a halo, its rows take part in every exchange."""
        num_slots = self.num_slots if with_halo else 0
        store = ShardedStore(codec, channels, self.num_rows, num_slots, self.device, self.finish)
        if with_halo:
            self._stores.append(store)
        return store

    @property
    def record_bytes(self) -> int:
        """Returns the bytes that are sent for one node."""
        layouts = [self._wire_of(store).layout(1, store.channels) for store in self._stores]
        return sum(prod(shape) * dtype.itemsize for layout in layouts for shape, dtype in layout.values())

    def launch(self, plan: Plan) -> None:
        """Starts to send the rows of a plan."""
        self.finish()
        if plan.is_empty or not self._stores:
            return
        fields = [part for store in self._stores for part in store.encode(plan.rows, self._wire_of(store)).values()]
        columns = [_as_bytes(part) for part in fields]
        sent = columns[0] if len(columns) == 1 else torch.cat(columns, dim=1)
        del fields, columns
        received = torch.empty(len(plan.slots), sent.shape[1], dtype=torch.uint8, device=self.device)
        wait = self.ranks.all_to_all(received, sent, plan.received, plan.sent)
        self.traffic.halo += plan.sent_to_others(self.ranks.rank) * sent.shape[1]
        self._flight = _Flight(plan, sent, received, wait)

    def finish(self) -> None:
        """Waits for the rows that are under way, if any, and stores them."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        started = time.perf_counter()
        flight.wait()
        self.traffic.exposed += time.perf_counter() - started
        start = 0
        for store in self._stores:
            wire = self._wire_of(store)
            parts: Parts = {}
            for name, (shape, dtype) in wire.layout(len(flight.received), store.channels).items():
                stop = start + prod(shape[1:]) * dtype.itemsize
                parts[name] = _from_bytes(flight.received[:, start:stop], shape, dtype)
                start = stop
            store.receive(flight.plan.slots, parts, wire)

    def drop_copies(self) -> None:
        """Returns the memory of all copies to the system, after which every step has to exchange its rows."""
        self.finish()
        for store in self._stores:
            store.drop_copies()

    def _wire_of(self, store: ShardedStore) -> Codec:
        if store.codec.dtype.itemsize <= self.wire.itemsize:
            return store.codec
        return Codec(self.wire, store.codec.compute_dtype)


def _as_bytes(part: Tensor) -> Tensor:
    return (part.unsqueeze(1) if part.dim() == 1 else part).contiguous().view(torch.uint8)


def _from_bytes(columns: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    # of one row or none, `contiguous` keeps the place and the width of the record, which may not be those of numbers
    rows = columns.contiguous() if len(columns) > 1 else columns.clone(memory_format=torch.contiguous_format)
    return rows.view(dtype).reshape(tuple(shape))
