"""Every way to keep rows, and copies that take their time."""

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.history import Store, StoredHistory, open_history
from lazygnn.history.codec import Codec, Parts
from lazygnn.history.host import HostStore
from lazygnn.history.transfer import Transfer, Wait
from lazygnn.history.warmstart import WarmStart

OpenHistory = Callable[..., StoredHistory]


class SlowTransfer(Transfer):
    """Takes the place of a device: its streams keep their order, and waiting for them takes a while."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def to_host(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Wait]:
        return [t.clone() for t in tensors], lambda: time.sleep(random.random() * 1e-3)

    def to_device(self, parts: Parts) -> tuple[Parts, Wait]:
        return {name: part.clone() for name, part in parts.items()}, lambda: None


def slow_host_store(num_rows: int, channels: int, codec: Codec, worker: ThreadPoolExecutor | None = None) -> HostStore:
    layout = codec.layout(num_rows, channels)
    parts = {name: torch.zeros(shape, dtype=dtype) for name, (shape, dtype) in layout.items()}
    worker = worker or ThreadPoolExecutor(max_workers=1)
    return HostStore(parts, codec, torch.device("cpu"), transfer=SlowTransfer(), worker=worker)


@pytest.fixture
def slow_store() -> Callable[..., HostStore]:
    return slow_host_store


@pytest.fixture(params=["device", "host", "disk", "worker"])
def any_tier(request: pytest.FixtureRequest) -> str:
    """The three tiers on a CPU, and the thread that serves two of them on an accelerator."""
    return str(request.param)


@pytest.fixture
def open_tier(tmp_path: Path) -> OpenHistory:
    """Opens a history on any tier by name."""

    def open_tier(tier: str, num_nodes: int, channels: int, start: WarmStart, **options: Any) -> StoredHistory:
        if tier != "worker":
            return open_history(num_nodes, channels, start, tier=tier, folder=tmp_path, **options)  # type: ignore[arg-type]
        codec = Codec(options.get("dtype", torch.float32), options.get("compute_dtype", torch.float32))
        worker = ThreadPoolExecutor(max_workers=1)
        stores: list[Store] = [slow_host_store(num_nodes, channels, codec, worker) for _ in range(2)]
        inputs = stores[1] if start.stores_inputs else None
        return StoredHistory(start, stores[0], inputs, halo_inputs=options.get("halo_inputs", False))

    return open_tier
