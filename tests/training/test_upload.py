"""Batches on their way to the device."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader.cluster import ClusterLoader
from lazygnn.ops import Csr
from lazygnn.training.upload import Uploads

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PTR = torch.tensor([0, 15, 25, 48, 60])
EDGES = pytest.mark.parametrize("edges", [None, "cuda"])


def test_a_batch_that_is_there_is_handed_out_as_it_is(block_graph: Graph) -> None:
    batch, uploads = Batch.full(block_graph, 2), Uploads(torch.device("cpu"))
    assert uploads.announce(batch) is batch
    assert uploads.take(batch) is batch
    uploads.stage_next(batch)
    uploads.stage(batch)
    assert uploads.bring(batch) is batch
    assert uploads.idle


def assert_same(one: Batch, other: Batch) -> None:
    assert all(tensor.is_cuda for tensor in one.tensors())
    assert one.num_targets == other.num_targets
    assert one.whole == other.whole
    for mine, given in zip(one.tensors(), other.tensors(), strict=True):
        assert torch.equal(mine.cpu(), given.cpu())


def pinned(graph: Graph, edges: str | None = None) -> Iterator[Batch]:
    """Batches in page-locked memory, or their features alone."""
    loader = ClusterLoader(graph, PTR, 2, pin=True, edges=edges)
    for batch in loader:
        num_features = 3 if isinstance(batch.x, Csr) else 1
        for number, tensor in enumerate(batch.tensors()):
            assert tensor.is_cuda if edges is not None and number >= num_features else tensor.is_pinned()
        yield batch


@pytest.mark.gpu
@gpu
@EDGES
def test_an_announced_batch_is_the_one_that_is_taken(block_graph: Graph, edges: str | None) -> None:
    uploads, batches = Uploads(torch.device("cuda")), list(pinned(block_graph, edges))
    for batch, following in zip(batches, [*batches[1:], batches[0]], strict=True):
        taken = uploads.take(batch)
        assert not uploads.idle
        announced = uploads.announce(following)
        torch.cuda._sleep(10_000_000)
        assert_same(taken, batch)
        assert announced.adjs[0] is announced.adjs[1]
        assert uploads.take(following) is announced


@pytest.mark.gpu
@gpu
@EDGES
def test_another_batch_than_the_announced_one_can_be_taken(block_graph: Graph, edges: str | None) -> None:
    uploads, (first, second, *_) = Uploads(torch.device("cuda")), list(pinned(block_graph, edges))
    uploads.announce(first)
    assert_same(uploads.take(second), second)


@pytest.mark.gpu
@gpu
@EDGES
def test_a_graph_can_bring_its_batch(block_graph: Graph, edges: str | None) -> None:
    uploads, batch = Uploads(torch.device("cuda")), next(pinned(block_graph, edges))
    total = torch.zeros((), device="cuda")

    def visit() -> None:
        here = uploads.bring(batch)
        total.add_(torch.as_tensor(here.x).sum()).add_(here.adjs[0].value.sum())

    uploads.stage(batch)
    visit()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        visit()
    for _ in range(3):
        uploads.stage(batch)
        graph.replay()
    expected = 4 * (float(torch.as_tensor(batch.x).sum()) + float(batch.adjs[0].value.sum()))
    assert float(total) == pytest.approx(expected, rel=1e-5)


@pytest.mark.gpu
@gpu
@EDGES
def test_features_are_laid_out_ahead_and_always_read_in_one_place(block_graph: Graph, edges: str | None) -> None:
    uploads, batches = Uploads(torch.device("cuda")), list(pinned(block_graph, edges))
    places = {}
    for batch in batches:
        uploads.stage(batch)
        places[batch] = torch.as_tensor(uploads.bring(batch).x).data_ptr()
    order = [*batches[::-1], *batches, batches[2], batches[2]]
    for batch, following in zip(order, [*order[1:], batches[0]], strict=True):
        uploads.stage(batch)
        torch.cuda._sleep(2_000_000)
        uploads.stage_next(following)
        brought = uploads.bring(batch)
        assert torch.as_tensor(brought.x).data_ptr() == places[batch]
        assert_same(brought, batch)
    # another one than the one on the shelf
    uploads.stage(batches[3])
    assert_same(uploads.bring(batches[3]), batches[3])


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("sparse", [False, True])
def test_edges_that_are_there_are_never_copied(block_graph: Graph, sparse: bool) -> None:
    rows = torch.arange(60).repeat_interleave(2)
    x = Csr.from_sorted(rows, torch.arange(120) % 7, torch.arange(1.0, 121), (60, 7)) if sparse else block_graph.x
    uploads, batches = Uploads(torch.device("cuda")), list(pinned(replace(block_graph, x=x), "cuda"))
    for batch, following in zip(batches, [*batches[1:], batches[0]], strict=True):
        uploads.stage(batch)
        uploads.stage_next(following)
        pairs = [(uploads.bring(batch), batch), (uploads.take(batch), batch), (uploads.announce(following), following)]
        assert not uploads.idle
        for there, origin in pairs:
            assert_same(there, origin)
            assert there.nodes is origin.nodes
            assert all(one is other for one, other in zip(there.adjs, origin.adjs, strict=True))


@pytest.mark.gpu
@gpu
def test_a_batch_knows_where_it_is_by_any_name(block_graph: Graph) -> None:
    batch = Batch.full(block_graph, 2).to(torch.device("cuda"))
    for name in ("cuda", "cuda:0"):
        assert batch.to(torch.device(name)) is batch


@pytest.mark.gpu
@gpu
def test_a_new_shelf_waits_for_who_reads_its_memory_still(block_graph: Graph) -> None:
    uploads, batch = Uploads(torch.device("cuda")), next(pinned(block_graph))
    for _ in range(4):
        let_go = torch.full(batch.x.shape, torch.inf, device="cuda")
        address = let_go.data_ptr()
        torch.cuda._sleep(20_000_000)
        read = let_go.clone()
        del let_go
        uploads.stage_next(batch)
        assert uploads._shelf is not None
        if uploads._shelf.data_ptr() == address:
            break
        uploads._shelf = None
    else:
        pytest.fail("the memory was never handed out again")
    assert bool((read == torch.inf).all())
