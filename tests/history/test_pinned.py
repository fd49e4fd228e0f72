"""Rows that a device reads out of host memory by itself."""

import pytest
import torch

from lazygnn.history import StoredHistory, open_history
from lazygnn.history.pinned import PinnedStore, map_pinned
from lazygnn.warmstart import Drift

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


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


def test_a_graph_reads_and_writes_what_lies_there_now() -> None:
    history = open_history(50, 4, Drift(0.1), tier="pinned", device="cuda")
    twin = open_history(50, 4, Drift(0.1), device="cuda")
    nodes, fresh = torch.randperm(50, device="cuda")[:30], torch.randn(20, 4, device="cuda")
    everything = torch.arange(50, device="cuda")
    for each in (history, twin):
        each.push(everything, torch.ones(50, 4, device="cuda"), torch.ones(50, 4, device="cuda"))
    assert history.capturable

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
