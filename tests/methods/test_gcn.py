from collections.abc import Callable
from typing import Any

from lazygnn.methods import Built
from lazygnn.model import Model
from lazygnn.models import GCN

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


def test_the_options_describe_a_gcn_over_the_whole_graph(make: Make, is_same: IsSame) -> None:
    built = make("gcn", num_layers=3, **LAYERS)

    def expected() -> Model:
        return GCN(built.graph.in_channels, 9, 3, num_layers=3, norm="layer", dropout=0.2, input_dropout=0.1)

    assert is_same(built, expected)
    (batch,) = built.loader
    assert (batch.num_targets, len(batch.adjs)) == (60, 3)
