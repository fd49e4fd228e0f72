"""Rows in host memory, or in memory-mapped files, for a compute device that is too small for them.

One thread does all reads and writes of the rows, in order, so a read sees every write before it. Rows prefetched before
a write are corrected on the device with the written values, so that the read does not wait for the write.
"""

from collections import deque
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lazygnn.history.base import Store
from lazygnn.history.codec import Codec, Parts
from lazygnn.history.transfer import Transfer, Wait

# how many prefetches may be in progress, and how many writes may overtake one before it is dropped
AHEAD = 2


@dataclass(frozen=True)
class _Fetch:
    # keeps the indices alive, so that no other tensor gets their address
    rows: Tensor
    arrival: "Future[tuple[Parts, Wait]]"
    # rows written since, and their new values
    newer: list[tuple[Tensor, Parts]] = field(default_factory=list)


class HostStore(Store):
    """Moves rows between the host and the device in the background.

    Args:
        parts: The tensors that store all rows, in host memory.
        codec: How a row is stored.
        device: The compute device.
        transfer: Makes the copies.
        worker: Runs one call at a time, in order.
    """

    def __init__(
        self, parts: Parts, codec: Codec, device: torch.device, *, transfer: Transfer, worker: Executor
    ) -> None:
        super().__init__(parts, codec, device)
        self._transfer = transfer
        self._worker = worker
        self._fetches: dict[tuple[object, ...], _Fetch] = {}
        self._writes: deque[Future[None]] = deque()

    def prefetch(self, rows: Tensor) -> None:
        """Starts to gather these rows; a `read` of the same memory takes them."""
        key = _key(rows)
        if key not in self._fetches:
            self._fetches[key] = self._fetch(rows)
        if len(self._fetches) > AHEAD:
            del self._fetches[next(iter(self._fetches))]

    def read(self, rows: Tensor) -> Tensor:
        """Returns the prefetched rows, or fetches them now."""
        fetch = self._fetches.pop(_key(rows), None) or self._fetch(rows)
        parts, wait = fetch.arrival.result()
        self._raise_failures()
        wait()
        values = self.codec.decode(parts)
        for written, newer in fetch.newer:
            values = _replace(values, rows.to(self.device), written, self.codec.decode(newer), self.num_rows)
        return values

    def write(self, rows: Tensor, values: Tensor) -> None:
        """Starts to scatter a copy of these values."""
        self._raise_failures()
        parts = self.codec.encode(values.clone())
        self._overtake(rows.to(self.device), parts)
        (ids, *staged), wait = self._transfer.to_host([rows, *parts.values()])
        self._writes.append(self._worker.submit(self._land, ids, dict(zip(parts, staged, strict=True)), wait))

    def flush(self) -> None:
        """Waits until the thread is idle; prefetched rows are dropped."""
        self._fetches.clear()
        self._worker.submit(lambda: None).result()
        self._raise_failures()

    def _fetch(self, rows: Tensor) -> _Fetch:
        self._raise_failures()
        (ids,), wait = self._transfer.to_host([rows])
        return _Fetch(rows, self._worker.submit(self._gather, ids, wait))

    def _gather(self, ids: Tensor, wait: Wait) -> tuple[Parts, Wait]:
        wait()
        gathered = {}
        for name, part in self.parts.items():
            staged = self._transfer.empty((len(ids), *part.shape[1:]), part.dtype)
            gathered[name] = torch.index_select(part, 0, ids, out=staged)
        return self._transfer.to_device(gathered)

    def _land(self, ids: Tensor, parts: Parts, wait: Wait) -> None:
        wait()
        self._scatter(ids, parts)

    def _overtake(self, rows: Tensor, parts: Parts) -> None:
        for key, fetch in list(self._fetches.items()):
            fetch.newer.append((rows, parts))
            if len(fetch.newer) > AHEAD:
                del self._fetches[key]

    def _raise_failures(self) -> None:
        while self._writes and self._writes[0].done():
            self._writes.popleft().result()


def _key(rows: Tensor) -> tuple[object, ...]:
    # two slices of one tensor are two objects over the same memory; comparing their contents would synchronize
    return rows.data_ptr(), rows.shape, rows.stride()


def _replace(values: Tensor, rows: Tensor, written: Tensor, newer: Tensor, num_rows: int) -> Tensor:
    """Returns `values` of `rows` with those `written` since replaced; does not synchronize with the device."""
    if len(written) == 0:
        return values
    place = torch.full((num_rows,), -1, dtype=torch.int32, device=rows.device)
    place[written] = torch.arange(len(written), dtype=torch.int32, device=rows.device)
    place = place[rows]
    return torch.where((place >= 0).unsqueeze(1), newer[place.clamp(min=0)], values)
