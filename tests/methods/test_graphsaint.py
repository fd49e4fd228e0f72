from collections.abc import Callable
from typing import Any

import pytest

from lazygnn.errors import ConfigError
from lazygnn.loader import SaintLoader
from lazygnn.methods import Built, resolve
from lazygnn.model import Model
from lazygnn.models import GCN

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


@pytest.mark.parametrize(("sampler", "batches"), [("node", 10), ("edge", 5), ("walk", 3)])
def test_the_options_describe_a_gcn_on_subgraphs(make: Make, is_same: IsSame, sampler: str, batches: int) -> None:
    length = {"walk_length": 3} if sampler == "walk" else {}
    built = make("graphsaint", sampler=sampler, num_samples=6, coverage=3, num_layers=3, **length, **LAYERS)

    def expected() -> Model:
        return GCN(built.graph.in_channels, 9, 3, num_layers=3, norm="layer", dropout=0.2, input_dropout=0.1)

    assert is_same(built, expected)
    assert isinstance(built.loader, SaintLoader)
    assert len(built.loader) == batches
    assert built.loader.counts.num_subgraphs >= 3 * 60 / (6 * 4)
    assert all(len(batch.adjs) == 3 and len(batch.nodes) <= 60 // (batches - 1) for batch in built.loader)


def test_the_length_of_walks_needs_walks() -> None:
    with pytest.raises(ConfigError, match="`walk_length` is 4, but `sampler` is edge; set `sampler=walk`, or omit"):
        resolve("graphsaint", "mine", {"sampler": "edge", "walk_length": 4})
    resolve("graphsaint", "mine", {"walk_length": 4})
