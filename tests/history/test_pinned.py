"""Rows that a device reads out of host memory by itself."""

from pathlib import Path

import pytest
import torch

from lazygnn.history import StoredHistory, Tier, open_history
from lazygnn.history.pinned import PinnedStore, map_pinned
from lazygnn.propagation import Drift, Mix
from lazygnn.run.checkpoint import CheckpointFolder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DTYPES = [torch.float32, torch.bfloat16, torch.int8]
TIERS: tuple[Tier, Tier] = ("pinned", "device")


def test_the_memory_is_that_of_the_host() -> None:
    device = torch.device("cuda")
    torch.zeros(1, device=device)
    before = torch.cuda.memory_allocated()
    parts = map_pinned({"rows": ((100_000, 33), torch.bfloat16), "scale": ((100_000,), torch.float32)}, device)
    assert torch.cuda.memory_allocated() == before
    assert [(part.dtype, part.is_cuda) for part in parts.values()] == [(torch.bfloat16, True), (torch.float32, True)]
    assert not any(bool(part.any()) for part in parts.values())
    parts["rows"][7] = 3
    assert parts["rows"].cpu()[7].tolist() == [3] * 33


@pytest.mark.parametrize("columns", [1, 33, 47, 48])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_a_multiple_of_16_bytes_apart(dtype: torch.dtype, columns: int) -> None:
    part = map_pinned({"rows": ((10, columns), dtype)}, torch.device("cuda"))["rows"]
    apart = part.stride(0) * part.element_size()
    assert part.shape == (10, columns)
    assert part.stride(1) == 1
    assert apart % 16 == 0
    assert 0 <= apart - columns * part.element_size() < 16
    # to the end of the last row
    assert part.untyped_storage().nbytes() == 10 * apart


@pytest.mark.parametrize("choice", ["auto", "reference"])
@pytest.mark.parametrize("channels", [1, 5, 47, 48])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_are_those_of_the_device(
    dtype: torch.dtype, channels: int, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", choice)
    far, near = (open_history(9000, channels, Mix(0.5), tier=tier, dtype=dtype, device="cuda").values for tier in TIERS)
    assert far.num_bytes >= near.num_bytes
    for seed in range(3):
        torch.manual_seed(seed)
        rows, new = torch.randperm(9000, device="cuda")[:7001], torch.randn(7001, channels, device="cuda")
        far.write(rows, new)
        near.write(rows, new)
        other = torch.randperm(9000, device="cuda")[:5000]
        if seed:
            far.prefetch(other)
        assert torch.equal(far.read(other), near.read(other))
        assert torch.equal(far.read(other.cpu()), near.read(other))
    assert all(torch.equal(part, near.state()[name]) for name, part in far.state().items())
    again = open_history(9000, channels, Mix(0.5), tier="pinned", dtype=dtype, device="cuda").values
    again.load({name: part.cpu() for name, part in near.state().items()})
    assert all(torch.equal(part, near.state()[name]) for name, part in again.state().items())


def test_rows_survive_a_checkpoint(tmp_path: Path) -> None:
    store = open_history(900, 47, Mix(0.5), tier="pinned", dtype=torch.bfloat16, device="cuda").values
    rows = torch.arange(900, device="cuda")
    store.write(rows, torch.randn(900, 47, device="cuda"))
    folder = CheckpointFolder(tmp_path)
    folder.save(1, store.state(), {})
    checkpoint = folder.load_latest()
    assert checkpoint is not None
    before = store.read(rows)
    store.write(rows, torch.zeros(900, 47, device="cuda"))
    store.load(checkpoint.tensors)
    assert torch.equal(store.read(rows), before)


def test_rows_may_be_gathered_into_memory_that_others_still_read() -> None:
    """The memory of a prefetch may have been freed while kernels that read it are yet to run."""
    store = open_history(5000, 48, Mix(0.5), tier="pinned", device="cuda").values
    rows = torch.arange(5000, device="cuda")
    for _ in range(4):
        freed = torch.full((5000, 48), torch.inf, device="cuda")
        address = freed.data_ptr()
        torch.cuda._sleep(20_000_000)
        read = freed.clone()
        del freed
        store.prefetch(rows)
        assert isinstance(store, PinnedStore)
        assert store._fetch is not None
        if store._fetch.parts["rows"].data_ptr() == address:
            break
    else:
        pytest.fail("the memory was never used again")
    assert bool((read == torch.inf).all())
    assert not bool(store.read(rows).any())


def test_the_memory_stays_as_long_as_it_is_used() -> None:
    part = map_pinned({"rows": ((1000, 8), torch.float32)}, torch.device("cuda"))["rows"]
    part.fill_(5)
    torch.full((1000, 8), 9.0, pin_memory=True)
    assert bool((part == 5).all())


def test_only_what_was_prefetched_last_is_kept() -> None:
    store = open_history(10, 1, Drift(), tier="pinned", device="cuda").values
    assert isinstance(store, PinnedStore)
    rows = [torch.arange(4, device="cuda"), torch.arange(2, 9, device="cuda")]
    store.write(torch.arange(10, device="cuda"), torch.arange(10.0, device="cuda")[:, None])
    for each in rows:
        store.prefetch(each)
    for each in rows:
        assert store.read(each)[:, 0].tolist() == each.tolist()


@pytest.mark.parametrize("channels", [4, 47])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_graph_reads_and_writes_the_current_rows(dtype: torch.dtype, channels: int) -> None:
    history = open_history(50, channels, Drift(0.1), tier="pinned", dtype=dtype, device="cuda")
    twin = open_history(50, channels, Drift(0.1), dtype=dtype, device="cuda")
    nodes, fresh = torch.randperm(50, device="cuda")[:30], torch.randn(20, channels, device="cuda")
    everything, ones = torch.arange(50, device="cuda"), torch.ones(50, channels, device="cuda")
    for each in (history, twin):
        each.push(everything, ones, ones)
    assert history.complete

    def visit(each: StoredHistory) -> None:
        each.prefetch(nodes, 20)
        each.push(nodes[:20], 0.5 * each.start(nodes, 20, fresh).x, fresh)

    visit(history)
    visit(twin)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        visit(history)
    for value in range(4):
        fresh.fill_(value)
        graph.replay()
        visit(twin)
    one, other = history.state_dict(), twin.state_dict()
    assert all(torch.equal(one[name].cpu(), other[name].cpu()) for name in other)
