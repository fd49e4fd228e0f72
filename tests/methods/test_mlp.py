from collections.abc import Callable
from typing import Any

from lazygnn.methods import Built
from lazygnn.model import Model
from lazygnn.models import MLP, Decoupled
from lazygnn.models.layers import Linear
from lazygnn.propagation import NoPropagation

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]
LAYERS: dict[str, Any] = {"hidden_channels": 9, "norm": "layer", "dropout": 0.2, "input_dropout": 0.1}


def test_the_options_describe_an_mlp_without_edges(make: Make, is_same: IsSame) -> None:
    built = make("mlp", mlp_layers=3, **LAYERS)

    def expected() -> Model:
        mlp = MLP(built.graph.in_channels, 9, 3, mlp_layers=3, norm="layer", dropout=0.2, input_dropout=0.1)
        return Decoupled(mlp, NoPropagation())

    assert is_same(built, expected)
    assert len(next(iter(built.loader)).adjs) == 0


def test_another_propagated_width_needs_a_head(make: Make, is_same: IsSame) -> None:
    built = make("mlp", mlp_layers=2, prop_channels=5, hidden_channels=9, dropout=0.0)

    def expected() -> Model:
        mlp = MLP(built.graph.in_channels, 9, 5, mlp_layers=2, dropout=0.0)
        return Decoupled(mlp, NoPropagation(), Linear(5, 3))

    assert is_same(built, expected)
