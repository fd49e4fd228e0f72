import pytest
import torch

from lazygnn.graph import Graph
from lazygnn.loader import NeighborLoader, RowLoader
from lazygnn.loader.nodes import NodeLoader


def test_an_epoch_holds_every_training_node_once(block_graph: Graph) -> None:
    loader = RowLoader(block_graph, 6)
    batches = list(loader)
    assert [batch.num_targets for batch in batches] == [6, 6, 6, 2]
    assert len(loader) == 4
    targets = torch.cat([batch.targets for batch in batches])
    assert torch.equal(targets.sort().values, block_graph.masks["train"].nonzero()[:, 0])


def test_weights_make_the_mean_over_batches_the_mean_over_nodes(block_graph: Graph) -> None:
    batches = list(RowLoader(block_graph, 6))
    assert all(bool((batch.weight == 4 / 20).all()) for batch in batches)
    loss = torch.rand(60)
    mean = sum(float((batch.weight * loss[batch.targets]).sum()) for batch in batches) / 4
    assert mean == pytest.approx(float(loss[block_graph.masks["train"]].mean()))


@pytest.mark.parametrize("size", [None, 20, 1000])
def test_all_nodes_at_once_keep_the_node_order(block_graph: Graph, size: int | None) -> None:
    loaders: tuple[NodeLoader, ...] = (RowLoader(block_graph, size), NeighborLoader(block_graph, [2], batch_size=size))
    for loader in loaders:
        (batch,) = loader
        assert torch.equal(batch.targets, block_graph.masks["train"].nonzero()[:, 0])


def test_all_nodes_can_be_split_instead_of_the_training_nodes(block_graph: Graph) -> None:
    loader = RowLoader(block_graph, 25, every_node=True)
    batches = list(loader)
    assert [batch.num_targets for batch in batches] == [25, 25, 10]
    targets = torch.cat([batch.targets for batch in batches])
    assert not torch.equal(targets, torch.arange(60))
    assert torch.equal(targets.sort().values, torch.arange(60))
    assert all(torch.equal(batch.weight, block_graph.masks["train"][batch.targets] * (3 / 20)) for batch in batches)


def test_a_batch_size_of_zero_is_refused(block_graph: Graph) -> None:
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        RowLoader(block_graph, 0)
