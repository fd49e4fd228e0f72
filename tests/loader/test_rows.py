import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import RowLoader


def rows_of(batch: Batch) -> Tensor:
    assert isinstance(batch.x, Tensor)
    return batch.x


def test_an_epoch_holds_every_training_node_once(block_graph: Graph) -> None:
    loader = RowLoader(block_graph, 6)
    batches = list(loader)
    assert [batch.num_targets for batch in batches] == [6, 6, 6, 2]
    assert len(loader) == 4
    nodes = torch.cat([batch.nodes for batch in batches])
    assert torch.equal(nodes.sort().values, block_graph.masks["train"].nonzero()[:, 0])
    assert isinstance(block_graph.x, Tensor)
    for batch in batches:
        assert torch.equal(rows_of(batch), block_graph.x[batch.nodes])
        assert torch.equal(batch.y, block_graph.y[batch.nodes])
        assert batch.adjs == []


def test_weights_make_the_mean_over_batches_the_mean_over_nodes(block_graph: Graph) -> None:
    batches = list(RowLoader(block_graph, 6))
    assert all(bool((batch.weight == 4 / 20).all()) for batch in batches)
    loss = torch.rand(60)
    mean = sum(float((batch.weight * loss[batch.nodes]).sum()) for batch in batches) / 4
    assert mean == pytest.approx(float(loss[block_graph.masks["train"]].mean()))


def test_all_rows_at_once_keep_the_node_order(block_graph: Graph) -> None:
    for size in (None, 20, 1000):
        (batch,) = RowLoader(block_graph, size)
        assert torch.equal(batch.nodes, block_graph.masks["train"].nonzero()[:, 0])


def test_the_order_changes_with_epoch_and_seed_and_with_nothing_else(block_graph: Graph) -> None:
    def orders(seed: int) -> list[list[int]]:
        loader = RowLoader(block_graph, 6, seed=seed)
        return [torch.cat([batch.nodes for batch in loader]).tolist() for _ in range(2)]

    assert orders(0) == orders(0)
    assert len({tuple(order) for order in (*orders(0), *orders(1))}) == 4


@pytest.mark.parametrize("stop", [0, 1, 3, 4, 6])
def test_goes_on_where_another_stood(block_graph: Graph, stop: int) -> None:
    def nodes(loader: RowLoader, count: int) -> list[list[int]]:
        found: list[list[int]] = []
        while len(found) < count:
            for batch in loader:
                found.append(batch.nodes.tolist())
                if len(found) == count:
                    break
        return found

    straight, first = RowLoader(block_graph, 6), RowLoader(block_graph, 6)
    expected = nodes(straight, 11)
    begun = nodes(first, stop)
    second = RowLoader(block_graph, 6, seed=9)
    second.load_state_dict(first.state_dict())
    assert begun + nodes(second, 11 - stop) == expected


def test_the_upcoming_batch_is_the_next_one(block_graph: Graph) -> None:
    loader, announced = RowLoader(block_graph, 6), list[Batch | None]()
    batches = []
    for batch in loader:
        batches.append(batch)
        announced.append(loader.upcoming())
    assert announced[-1] is None
    assert all(one is other for one, other in zip(announced, batches[1:], strict=False))


def test_a_sweep_holds_every_node_and_disturbs_nothing(block_graph: Graph) -> None:
    loader = RowLoader(block_graph, 6)
    next(iter(loader))
    before = loader.state_dict()
    assert torch.equal(torch.cat([batch.targets for batch in loader.sweep()]), torch.arange(60))
    assert loader.state_dict() == before


def test_a_batch_without_nodes_is_refused(block_graph: Graph) -> None:
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        RowLoader(block_graph, 0)
