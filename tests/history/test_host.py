"""The thread that moves rows: order, failures, and its end. On a CPU with slow copies, on a GPU with real ones."""

import gc
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from lazygnn.history import Store, open_history
from lazygnn.history.codec import Codec
from lazygnn.history.device import DeviceStore
from lazygnn.history.host import AHEAD, HostStore
from lazygnn.history.pinned import PinnedStore
from lazygnn.propagation import Mix

SlowStore = Callable[..., HostStore]
FLOAT = Codec(torch.float32, torch.float32)
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def exercise(store: Store, twin: Store, num_operations: int, disturb: Callable[[], Any]) -> None:
    """Writes, prefetches and reads at random; the twin, which does all at once, must agree bit for bit."""
    numbers, device = random.Random(3), store.device
    generator = torch.Generator(device).manual_seed(3)
    tables = [torch.randperm(store.num_rows, generator=generator, device=device) for _ in range(5)]

    def some_rows() -> Tensor:
        # slices of few tensors, so that what was prefetched is often read
        return numbers.choice(tables)[: numbers.choice((1, store.num_rows // 3, store.num_rows))]

    for _ in range(num_operations):
        rows, verb = some_rows(), numbers.choice(("write", "prefetch", "read", "disturb"))
        if verb == "write":
            values = torch.randn(len(rows), store.channels, generator=generator, device=device)
            for either in (store, twin):
                either.write(rows, values)
            # a write has taken its copy
            values.fill_(torch.nan)
        elif verb == "prefetch":
            store.prefetch(rows)
        elif verb == "read":
            assert torch.equal(store.read(rows), twin.read(rows))
        else:
            disturb()
    state, other = store.state(), twin.state()
    assert all(torch.equal(state[name].cpu(), other[name].cpu()) for name in other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
def test_any_order_of_operations_equals_doing_each_at_once(slow_store: SlowStore, dtype: torch.dtype) -> None:
    codec = Codec(dtype, torch.float32)
    layout = codec.layout(60, 3).items()
    twin = DeviceStore({n: torch.zeros(s, dtype=d) for n, (s, d) in layout}, codec, torch.device("cpu"))
    exercise(slow_store(60, 3, codec), twin, 600, lambda: time.sleep(1e-3))


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("tier", ["host", "pinned", "disk"])
def test_streams_equal_doing_all_at_once(
    tier: Literal["host", "pinned", "disk"], dtype: torch.dtype, tmp_path: Path
) -> None:
    numbers = random.Random(4)
    size: dict[str, Any] = {"num_nodes": 20_000, "channels": 33, "start": Mix(0.5), "dtype": dtype, "device": "cuda"}
    store = open_history(**size, tier=tier, folder=tmp_path).values
    assert isinstance(store, PinnedStore if tier == "pinned" else HostStore)

    def disturb() -> None:
        torch.cuda._sleep(numbers.choice((10_000, 1_000_000, 20_000_000)))
        # memory that is freed too early is soon overwritten
        torch.full((numbers.choice((20_000, 6_666)), 33), torch.nan, device="cuda")

    exercise(store, open_history(**size).values, 500, disturb)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("tier", ["host", "pinned"])
def test_a_caller_on_another_stream_is_waited_for(tier: Literal["host", "pinned"]) -> None:
    store = open_history(50_000, 16, Mix(0.5), tier=tier, device="cuda").values
    rows, stream = torch.randperm(50_000, device="cuda"), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for value in range(20):
            store.prefetch(rows)
            torch.cuda._sleep(5_000_000)
            store.write(rows, torch.full((50_000, 16), float(value), device="cuda"))
            assert bool((store.read(rows) == value).all())


def test_a_write_corrects_what_was_prefetched_before_it(slow_store: SlowStore) -> None:
    store = slow_store(4, 1, FLOAT)
    rows = torch.tensor([3, 1, 0])
    store.prefetch(rows)
    store.write(torch.tensor([1, 2]), torch.tensor([[5.0], [6.0]]))
    store.write(torch.tensor([0, 1]), torch.tensor([[7.0], [8.0]]))
    store.write(rows[:0], torch.zeros(0, 1))
    assert store.read(rows)[:, 0].tolist() == [0.0, 8.0, 7.0]


def test_two_slices_of_the_same_rows_are_the_same_request(slow_store: SlowStore) -> None:
    store = slow_store(6, 1, FLOAT)
    nodes = torch.arange(6)
    store.prefetch(nodes[:4])
    store.prefetch(nodes[:4])
    assert len(store._fetches) == 1
    assert store.read(nodes[:3]).shape == (3, 1)
    assert len(store._fetches) == 1
    store.read(nodes[:4])
    assert len(store._fetches) == 0


def test_prefetches_nobody_reads_do_not_pile_up(slow_store: SlowStore) -> None:
    store = slow_store(4, 1, FLOAT)
    tables = [torch.tensor([row]) for row in range(4)]
    for rows in tables:
        store.prefetch(rows)
    assert len(store._fetches) == AHEAD
    for value in range(AHEAD + 1):
        store.write(tables[3], torch.full((1, 1), float(value)))
    assert len(store._fetches) == 0
    assert store.read(tables[3]).item() == AHEAD


def test_a_failed_write_is_raised_by_a_later_call(slow_store: SlowStore) -> None:
    for later in ("read", "flush", "write"):
        thread = ThreadPoolExecutor(max_workers=1)
        store = slow_store(4, 1, FLOAT, thread)
        store.write(torch.tensor([9]), torch.ones(1, 1))
        # the write fails in the thread, before what follows it there
        thread.submit(int).result()
        rows = torch.tensor([0])
        arguments = {"read": (rows,), "flush": (), "write": (rows, torch.ones(1, 1))}[later]
        with pytest.raises(IndexError):
            getattr(store, later)(*arguments)
        # raised once; the store still works
        store.write(rows, torch.ones(1, 1))
        assert store.read(rows).item() == 1


def test_a_failed_prefetch_is_raised_by_its_read(slow_store: SlowStore) -> None:
    store = slow_store(4, 1, FLOAT)
    rows = torch.tensor([9])
    store.prefetch(rows)
    with pytest.raises(IndexError):
        store.read(rows)


def test_loading_forgets_what_was_prefetched(slow_store: SlowStore) -> None:
    store = slow_store(3, 1, FLOAT)
    rows = torch.arange(3)
    store.prefetch(rows)
    store.load({"rows": torch.full((3, 1), 4.0)})
    assert store.read(rows)[:, 0].tolist() == [4.0, 4.0, 4.0]


def test_the_thread_ends_with_its_store(slow_store: SlowStore) -> None:
    store = slow_store(3, 1, FLOAT, ThreadPoolExecutor(max_workers=1, thread_name_prefix="mortal"))
    store.write(torch.arange(3), torch.ones(3, 1))

    def alive() -> bool:
        return any(thread.name.startswith("mortal") for thread in threading.enumerate())

    assert alive()
    del store
    gc.collect()
    end = time.monotonic() + 60
    while alive() and time.monotonic() < end:
        time.sleep(0.01)
    assert not alive()
