"""Some batches of a loader."""

import torch

from common.batches import DrawnBatches, StoredBatches
from lazygnn.graph import Graph
from lazygnn.loader import NeighborLoader


def sampler(graph: Graph, batch_size: int) -> NeighborLoader:
    return NeighborLoader(graph, num_neighbors=[2], batch_size=batch_size)


def test_drawn_batches_are_those_of_the_loader_from_epoch_to_epoch(block_graph: Graph) -> None:
    size = -(-block_graph.num_train // 4)
    whole, few = sampler(block_graph, size), DrawnBatches(sampler(block_graph, size), 3)
    assert (len(whole), len(few)) == (4, 3)
    expected = [batch.nodes for _ in range(2) for batch in whole]
    found = [batch.nodes for _ in range(2) for batch in few]
    assert len(found) == 6
    for one, two in zip(found, expected, strict=False):
        assert torch.equal(one, two)


def test_drawn_batches_are_no_more_than_an_epoch_has(block_graph: Graph) -> None:
    few = DrawnBatches(sampler(block_graph, block_graph.num_nodes), 3)
    assert len(few) == len(list(few)) == 1


def test_drawn_batches_resume_where_they_were(block_graph: Graph) -> None:
    one, two = (DrawnBatches(sampler(block_graph, 8), 2) for _ in range(2))
    _ = list(one)
    two.load_state_dict(one.state_dict())
    for left, right in zip(one, two, strict=True):
        assert torch.equal(left.nodes, right.nodes)


def test_stored_batches_are_the_same_in_every_epoch(block_graph: Graph) -> None:
    loader = sampler(block_graph, 8)
    stored = StoredBatches(loader, list(loader)[:2])
    first, second = list(stored), list(stored)
    assert len(first) == 2
    assert all(one is two for one, two in zip(first, second, strict=True))
    assert stored.upcoming() is None
