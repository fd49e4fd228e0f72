from collections.abc import Callable
from typing import Any

from lazygnn.methods import Built
from lazygnn.model import Model
from lazygnn.models import GCNII

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


def test_the_options_describe_a_gcnii_over_the_whole_graph(make: Make, is_same: IsSame) -> None:
    built = make("gcnii", num_layers=4, alpha=0.2, theta=0.7, shared_weights=False, **LAYERS)

    def expected() -> Model:
        return GCNII(
            built.graph.in_channels,
            9,
            3,
            num_layers=4,
            alpha=0.2,
            theta=0.7,
            shared_weights=False,
            norm="layer",
            dropout=0.2,
            input_dropout=0.1,
        )

    assert is_same(built, expected)
    assert len(next(iter(built.loader)).adjs) == 4
