from collections.abc import Callable
from typing import Any

import pytest

from lazygnn.loader import LadiesLoader
from lazygnn.methods import Built
from lazygnn.model import Model
from lazygnn.models import GCN

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


@pytest.mark.parametrize("released", [False, True])
def test_the_options_describe_a_gcn_with_drawn_layers(make: Make, is_same: IsSame, released: bool) -> None:
    built = make("ladies", num_layers=3, num_samples=11, batch_size=6, released=released, **LAYERS)

    def expected() -> Model:
        return GCN(built.graph.in_channels, 9, 3, num_layers=3, norm="layer", dropout=0.2, input_dropout=0.1)

    assert is_same(built, expected)
    assert isinstance(built.loader, LadiesLoader)
    assert built.loader.released == released
    for batch in built.loader:
        assert batch.num_targets <= 6
        assert len(batch.adjs) == 3
        assert all(adj.num_cols <= 11 + 6 * released for adj in batch.adjs)
