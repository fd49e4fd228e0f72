"""What every loader promises: epochs, the batch ahead, sweeps and states to resume from."""

from collections.abc import Callable

import pytest
import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader import (
    ClusterLoader,
    ControlLoader,
    FastGCNLoader,
    FullLoader,
    ImportanceLoader,
    LadiesLoader,
    NeighborLoader,
    RowLoader,
    SaintLoader,
)
from lazygnn.loader.base import EpochLoader

PTR = torch.tensor([0, 8, 20, 21, 45, 60])
MAKERS: dict[str, Callable[[Graph, int], EpochLoader]] = {
    "full": lambda graph, _: FullLoader(graph, 2),
    "cluster": lambda graph, seed: ClusterLoader(graph, PTR, 2, seed=seed),
    "several parts": lambda graph, seed: ClusterLoader(graph, PTR, 2, parts_per_batch=2, seed=seed),
    "rows": lambda graph, seed: RowLoader(graph, 6, seed=seed),
    "neighbors": lambda graph, seed: NeighborLoader(graph, [2, 3], batch_size=7, seed=seed),
    "fastgcn": lambda graph, seed: FastGCNLoader(graph, 2, num_samples=9, batch_size=7, seed=seed),
    "ladies": lambda graph, seed: LadiesLoader(graph, 2, num_samples=9, batch_size=7, seed=seed),
    "released ladies": lambda graph, seed: LadiesLoader(
        graph, 2, num_samples=9, released=True, batch_size=7, seed=seed
    ),
    "control variates": lambda graph, seed: ControlLoader(graph, 2, num_neighbors=2, batch_size=7, seed=seed),
    "importance": lambda graph, seed: ImportanceLoader(graph, 2, batch_size=7, seed=seed),
    "subgraphs": lambda graph, seed: SaintLoader(graph, 2, num_samples=5, coverage=2, seed=seed),
}
# batches of the others are drawn anew, so that a node may be a target twice in an epoch
SPLITTING = [name for name in MAKERS if name not in ("importance", "subgraphs")]
every_loader = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
Maker = Callable[[Graph, int], EpochLoader]


def take(loader: EpochLoader, count: int) -> list[Batch]:
    """The next batches, over as many epochs as they take."""
    batches: list[Batch] = []
    while len(batches) < count:
        for batch in loader:
            batches.append(batch)
            if len(batches) == count:
                break
    return batches


def same(one: Batch, other: Batch) -> bool:
    matrices = zip(one.adjs, other.adjs, strict=True)
    return torch.equal(one.nodes, other.nodes) and all(torch.equal(a.to_dense(), b.to_dense()) for a, b in matrices)


@every_loader
def test_an_epoch_has_the_length_of_the_loader(make: Maker, block_graph: Graph) -> None:
    loader = make(block_graph, 0)
    assert [len(list(loader)) for _ in range(2)] == [len(loader)] * 2
    assert loader.epoch == 2
    assert loader.position == 0


@pytest.mark.parametrize("name", SPLITTING)
def test_targets_of_an_epoch_are_different_nodes(name: str, block_graph: Graph) -> None:
    targets = torch.cat([batch.targets for batch in MAKERS[name](block_graph, 0)])
    assert len(targets.unique()) == len(targets)


@every_loader
def test_a_loader_resumes_after_any_batch(make: Maker, block_graph: Graph) -> None:
    total = 2 * len(make(block_graph, 1)) + 1
    expected = take(make(block_graph, 1), total)
    for stop in range(total):
        first, second = make(block_graph, 1), make(block_graph, 99)
        begun = take(first, stop)
        state = first.state_dict()
        assert all(isinstance(value, int) for value in state.values())
        second.load_state_dict(state)
        # random numbers drawn elsewhere make no difference
        torch.manual_seed(stop)
        resumed = begun + take(second, total - stop)
        assert all(same(one, other) for one, other in zip(resumed, expected, strict=True))


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "importance"])
def test_upcoming_is_the_very_batch_that_comes_next(name: str, block_graph: Graph) -> None:
    loader, batches, announced = MAKERS[name](block_graph, 0), list[Batch](), list[Batch | None]()
    for batch in loader:
        batches.append(batch)
        announced.append(loader.upcoming())
    assert announced[-1] is None
    assert all(one is other for one, other in zip(announced[:-1], batches[1:], strict=True))


@every_loader
def test_a_sweep_holds_every_node_once_and_leaves_the_state(make: Maker, block_graph: Graph) -> None:
    loader = make(block_graph, 0)
    next(iter(loader))
    before = loader.state_dict()
    assert torch.equal(torch.cat([batch.targets for batch in loader.sweep()]), torch.arange(60))
    assert loader.state_dict() == before


@pytest.mark.parametrize("name", [name for name in SPLITTING if name != "full"])
def test_order_depends_on_seed_and_epoch(name: str, block_graph: Graph) -> None:
    def orders(seed: int) -> list[tuple[int, ...]]:
        loader = MAKERS[name](block_graph, seed)
        return [tuple(torch.cat([batch.targets for batch in loader]).tolist()) for _ in range(2)]

    assert orders(3) == orders(3)
    assert len({*orders(3), *orders(4)}) == 4
    assert len({frozenset(order) for order in (*orders(3), *orders(4))}) == 1


def test_a_state_without_a_seed_keeps_the_seed(block_graph: Graph) -> None:
    loader = FullLoader(block_graph, 1)
    loader.load_state_dict({"epoch": 3, "position": 1})
    assert loader.state_dict() == {"seed": 0, "epoch": 3, "position": 1}
    assert list(loader) == []
    assert loader.epoch == 4
