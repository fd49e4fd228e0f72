from collections.abc import Callable

from lazygnn.methods import Built
from lazygnn.model import Model
from lazygnn.models import MLP, Decoupled
from lazygnn.propagation import ExactPropagation

Make = Callable[..., Built]
IsSame = Callable[[Built, Callable[[], Model]], bool]


def test_the_options_describe_exact_steps_after_an_mlp(make: Make, is_same: IsSame) -> None:
    built = make("appnp", alpha=0.3, num_layers=7, hidden_channels=9, mlp_layers=2, dropout=0.2)

    def expected() -> Model:
        mlp = MLP(built.graph.in_channels, 9, 3, mlp_layers=2, dropout=0.2)
        return Decoupled(mlp, ExactPropagation(0.3, 7))

    assert is_same(built, expected)
    propagation = built.model.propagation
    assert isinstance(propagation, ExactPropagation)
    assert (propagation.alpha, propagation.eval_layers) == (0.3, 7)
    assert len(next(iter(built.loader)).adjs) == 7
