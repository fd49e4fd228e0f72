"""Batches on their way to the device."""

from collections.abc import Callable

import pytest
import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.training.upload import Uploads

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
Pinned = Callable[..., list[Batch]]
Compare = Callable[[Batch, Batch], None]
EDGES = pytest.mark.parametrize("edges", [None, "cuda"])


def test_a_batch_on_the_device_is_used_as_it_is(block_graph: Graph) -> None:
    batch, uploads = Batch.full(block_graph, 2), Uploads(torch.device("cpu"))
    assert uploads.prefetch(batch) is batch
    assert uploads.take(batch) is batch
    assert uploads.idle


@pytest.mark.gpu
@gpu
@EDGES
def test_a_prefetched_batch_is_the_one_that_is_taken(
    block_graph: Graph, edges: str | None, pinned: Pinned, assert_copied: Compare
) -> None:
    uploads, batches = Uploads(torch.device("cuda")), pinned(block_graph, edges)
    for batch, following in zip(batches, [*batches[1:], batches[0]], strict=True):
        taken = uploads.take(batch)
        assert not uploads.idle
        prefetched = uploads.prefetch(following)
        torch.cuda._sleep(10_000_000)
        assert_copied(taken, batch)
        assert prefetched.adjs[0] is prefetched.adjs[1]
        assert uploads.take(following) is prefetched


@pytest.mark.gpu
@gpu
@EDGES
def test_another_batch_than_the_prefetched_one_can_be_taken(
    block_graph: Graph, edges: str | None, pinned: Pinned, assert_copied: Compare
) -> None:
    uploads, (first, second, *_) = Uploads(torch.device("cuda")), pinned(block_graph, edges)
    uploads.prefetch(first)
    assert_copied(uploads.take(second), second)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("sparse", [False, True])
def test_edges_on_the_device_are_never_copied(
    block_graph: Graph, sparse: bool, pinned: Pinned, assert_copied: Compare
) -> None:
    uploads, batches = Uploads(torch.device("cuda")), pinned(block_graph, "cuda", sparse=sparse)
    for batch, following in zip(batches, [*batches[1:], batches[0]], strict=True):
        pairs = [(uploads.take(batch), batch), (uploads.prefetch(following), following)]
        assert not uploads.idle
        for there, origin in pairs:
            assert_copied(there, origin)
            assert there.nodes is origin.nodes
            assert all(one is other for one, other in zip(there.adjs, origin.adjs, strict=True))
