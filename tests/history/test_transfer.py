"""The order of copies and waits, with streams that record it; tests/history/test_host.py runs real ones on a GPU."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.history.transfer import CudaTransfer


class Device:
    """Records what its streams do; operations run at once."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = self.compute = Stream(self, "compute")

    @contextmanager
    def use(self, stream: "Stream") -> Iterator[None]:
        self.current, before = stream, self.current
        yield
        self.current = before


class Stream:
    def __init__(self, device: Device, name: str) -> None:
        self.device = device
        self.name = name

    def wait_stream(self, other: "Stream") -> None:
        self.device.log.append(f"{self.name} waits for {other.name}")

    def wait_event(self, event: "Event") -> None:
        self.device.log.append(f"{self.name} waits for {event.stream}")


class Event:
    def __init__(self, device: Device) -> None:
        self.device = device
        self.stream = "nothing"

    def record(self) -> None:
        self.stream = self.device.current.name

    def synchronize(self) -> None:
        self.device.log.append(f"host waits for {self.stream}")


class Unpinned(CudaTransfer):
    """Allocates plain memory, and records the stream of each copy."""

    def __init__(self, recorded: Device) -> None:
        super().__init__(torch.device("cpu"))
        self.recorded = recorded

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        self.recorded.log.append(f"copy on {self.recorded.current.name}")
        return torch.empty(shape, dtype=dtype)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found, names = Device(), iter(("down", "up"))

    def record_stream(_: Tensor, stream: Any) -> None:
        found.log.append(f"memory is used by {stream.name}")

    monkeypatch.setattr(torch.cuda, "Stream", lambda _: Stream(found, next(names)))
    monkeypatch.setattr(torch.cuda, "Event", lambda **_: Event(found))
    monkeypatch.setattr(torch.cuda, "stream", found.use)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: found.compute)
    monkeypatch.setattr(torch.Tensor, "record_stream", record_stream)
    return found


def test_a_copy_to_the_host_starts_after_the_computation_and_the_host_waits_for_it(device: Device) -> None:
    given = [torch.arange(6.0).view(3, 2), torch.tensor([1, -2], dtype=torch.int8)]
    copies, wait = Unpinned(device).to_host(given)
    assert device.log == ["down waits for compute", "copy on down", "copy on down"]
    wait()
    assert device.log[3:] == ["host waits for down"]
    for copy, origin in zip(copies, given, strict=True):
        assert torch.equal(copy, origin)
        assert copy.dtype == origin.dtype
        assert copy.data_ptr() != origin.data_ptr()


def test_the_compute_stream_waits_for_a_copy_to_the_device_and_the_host_does_not(device: Device) -> None:
    parts = {"rows": torch.ones(3, 2, dtype=torch.int8), "scale": torch.ones(3, 1)}
    copies, wait = Unpinned(device).to_device(parts)
    assert device.log == []
    wait()
    assert device.log == ["compute waits for up", "memory is used by compute", "memory is used by compute"]
    assert copies.keys() == parts.keys()
    assert all(torch.equal(copies[name], part) for name, part in parts.items())
