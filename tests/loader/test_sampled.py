import pytest
import torch

from lazygnn.batch import Batch
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.loader.rows import RowLoader
from lazygnn.loader.sampled import SampledLoader


class Coin(SampledLoader):
    """Batches with one random weight."""

    def __len__(self) -> int:
        return 3

    def draw(self, position: int, generator: torch.Generator) -> Batch:
        weight = torch.rand(1, generator=generator) + position
        return Batch(x=weight, y=weight, weight=weight, nodes=weight, num_targets=1, adjs=[])

    sweep = RowLoader.sweep


def test_a_batch_follows_from_seed_epoch_and_position(block_graph: Graph) -> None:
    loader = Coin(block_graph, seed=4)
    weights = [[float(batch.weight) for batch in loader] for _ in range(2)]
    assert [int(weight) for weight in weights[0]] == [0, 1, 2]
    fractions = [weight % 1 for epoch in weights for weight in epoch]
    assert len(set(fractions)) == 6
    again, other = Coin(block_graph, seed=4), Coin(block_graph, seed=5)
    torch.rand(7)
    assert [float(batch.weight) for batch in again] == weights[0]
    assert [float(batch.weight) for batch in other] != weights[0]


def test_a_batch_is_drawn_once(block_graph: Graph) -> None:
    loader = Coin(block_graph)
    assert loader.upcoming() is loader.upcoming()


def test_what_is_not_a_graph_is_refused() -> None:
    with pytest.raises(GraphError, match="`graph` is 'cora', of type str"):
        Coin("cora")  # type: ignore[arg-type]
