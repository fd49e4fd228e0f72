"""Batches for steps that are replayed."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import ClusterLoader
from lazygnn.training.inputs import StepInputs

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
Pinned = Callable[..., list[Batch]]
Compare = Callable[[Batch, Batch], None]
EDGES = pytest.mark.parametrize("edges", [None, "cuda"])


def test_a_batch_on_the_device_is_used_as_it_is(block_graph: Graph) -> None:
    batch, inputs = Batch.full(block_graph, 2), StepInputs(torch.device("cpu"))
    inputs.fetch(batch)
    inputs.put(batch)
    assert inputs.bring(batch) is batch


@pytest.mark.usefixtures("no_streams")
def test_a_step_reads_the_features_of_its_own_batch(block_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    # a stream makes the inputs hold features on a CPU too
    device = torch.device("cpu")
    inputs = StepInputs(device)
    monkeypatch.setattr(inputs, "_stream", torch.cuda.Stream(device))
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    # parts of one size share their memory, so that nothing but the values differs
    batches = list(ClusterLoader(block_graph, torch.tensor([0, 15, 30, 45, 60]), 2))
    for batch, announced in pairwise([*batches, batches[0], batches[2], batches[1], *batches]):
        inputs.put(batch)
        assert torch.equal(torch.as_tensor(inputs.bring(batch).x), torch.as_tensor(batch.x))
        inputs.fetch(announced)
        # what is announced does not change the features that the step reads
        assert torch.equal(torch.as_tensor(inputs.bring(batch).x), torch.as_tensor(batch.x))
    # a step on another batch than the one announced
    for batch in batches:
        inputs.fetch(batches[0])
        inputs.put(batch)
        assert torch.equal(torch.as_tensor(inputs.bring(batch).x), torch.as_tensor(batch.x))


@pytest.mark.gpu
@gpu
@EDGES
def test_a_graph_can_bring_its_batch(block_graph: Graph, edges: str | None, pinned: Pinned) -> None:
    inputs, batch = StepInputs(torch.device("cuda")), pinned(block_graph, edges)[0]
    total = torch.zeros((), device="cuda")

    def visit() -> None:
        here = inputs.bring(batch)
        total.add_(torch.as_tensor(here.x).sum()).add_(here.adjs[0].value.sum())

    inputs.put(batch)
    visit()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        visit()
    for _ in range(3):
        inputs.put(batch)
        graph.replay()
    expected = 4 * (float(torch.as_tensor(batch.x).sum()) + float(batch.adjs[0].value.sum()))
    assert float(total) == pytest.approx(expected, rel=1e-5)


@pytest.mark.gpu
@gpu
@EDGES
def test_features_are_fetched_ahead_and_always_read_in_one_place(
    block_graph: Graph, edges: str | None, pinned: Pinned, assert_copied: Compare
) -> None:
    inputs, batches = StepInputs(torch.device("cuda")), pinned(block_graph, edges)
    places = {}
    for batch in batches:
        inputs.put(batch)
        places[batch] = torch.as_tensor(inputs.bring(batch).x).data_ptr()
    order = [*batches[::-1], *batches, batches[2], batches[2]]
    for batch, following in zip(order, [*order[1:], batches[0]], strict=True):
        inputs.put(batch)
        torch.cuda._sleep(2_000_000)
        inputs.fetch(following)
        brought = inputs.bring(batch)
        assert torch.as_tensor(brought.x).data_ptr() == places[batch]
        assert_copied(brought, batch)
    # another one than the one in the buffer
    inputs.put(batches[3])
    assert_copied(inputs.bring(batches[3]), batches[3])


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("sparse", [False, True])
def test_edges_on_the_device_are_never_copied(
    block_graph: Graph, sparse: bool, pinned: Pinned, assert_copied: Compare
) -> None:
    inputs, batches = StepInputs(torch.device("cuda")), pinned(block_graph, "cuda", sparse=sparse)
    for batch, following in zip(batches, [*batches[1:], batches[0]], strict=True):
        inputs.put(batch)
        inputs.fetch(following)
        there = inputs.bring(batch)
        assert_copied(there, batch)
        assert there.nodes is batch.nodes
        assert all(one is other for one, other in zip(there.adjs, batch.adjs, strict=True))


@pytest.mark.gpu
@gpu
def test_a_new_buffer_waits_for_kernels_that_still_read_its_memory(block_graph: Graph, pinned: Pinned) -> None:
    inputs, batch = StepInputs(torch.device("cuda")), pinned(block_graph)[0]
    for _ in range(4):
        freed = torch.full(batch.x.shape, torch.inf, device="cuda")
        address = freed.data_ptr()
        torch.cuda._sleep(20_000_000)
        read = freed.clone()
        del freed
        inputs.fetch(batch)
        assert inputs._buffer is not None
        if inputs._buffer.data_ptr() == address:
            break
        inputs._buffer = None
    else:
        pytest.fail("the memory was never used again")
    assert bool((read == torch.inf).all())
