from collections.abc import Callable
from typing import Any

import pytest

from lazygnn.errors import ConfigError
from lazygnn.methods import Built, resolve
from lazygnn.model import Model
from lazygnn.models import SAGE

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


def test_a_layer_for_each_number_of_neighbors(make: Make, is_same: IsSame) -> None:
    built = make("graphsage", num_neighbors=[2, 3, 4], batch_size=6, **LAYERS)

    def expected() -> Model:
        return SAGE(built.graph.in_channels, 9, 3, num_layers=3, norm="layer", dropout=0.2, input_dropout=0.1)

    assert is_same(built, expected)
    for batch in built.loader:
        assert batch.num_targets <= 6
        # the last layer is next to the targets
        assert batch.adjs[-1].num_rows == batch.num_targets
        for adj, most in zip(batch.adjs, [2, 3, 4], strict=True):
            assert int(adj.rowptr.diff().max()) <= most


@pytest.mark.parametrize("num_neighbors", [[], [0], [3, -2]])
def test_neighbors_that_cannot_be_sampled_are_refused(num_neighbors: list[int]) -> None:
    with pytest.raises(ConfigError, match="option `num_neighbors"):
        resolve("graphsage", "cora", {"num_neighbors": num_neighbors})
