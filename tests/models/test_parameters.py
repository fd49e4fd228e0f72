import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import nn

from lazygnn.models.layers import Linear
from lazygnn.models.parameters import glorot, load_renamed, parameters_by_layer


def test_a_weight_starts_within_the_glorot_bound() -> None:
    torch.manual_seed(0)
    weight = glorot(50, 70).detach()
    bound = (6 / 120) ** 0.5
    assert weight.shape == (50, 70)
    assert 0.9 * bound < float(weight.max()) <= bound
    assert -bound <= float(weight.min()) < -0.9 * bound


def test_a_norm_belongs_to_the_layer_before_it() -> None:
    layers = [Linear(3, 4), Linear(4, 2)]
    norms = [nn.LayerNorm(4)]
    groups = parameters_by_layer(layers, norms)
    assert [[id(p) for p in group] for group in groups] == [
        [id(p) for p in (layers[0].weight, layers[0].bias, norms[0].weight, norms[0].bias)],
        [id(p) for p in layers[1].parameters()],
    ]


class Renamed(nn.Module):
    """Its weight was called `gewicht` once."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = glorot(3, 2)
        load_renamed(self, {"gewicht": "weight"})


class Net(nn.Module):
    """Holds the renamed parameter one level down."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Linear(3, 3), Renamed()


def pickled(model: Net) -> Net:
    copied: Net = pickle.loads(pickle.dumps(model))
    return copied


@pytest.mark.parametrize("prepare", [lambda model: model, copy.deepcopy, pickled], ids=["as made", "copied", "pickled"])
@pytest.mark.parametrize("name", ["weight", "gewicht"])
def test_weights_load_under_earlier_and_current_names(prepare: Callable[[Net], Net], name: str) -> None:
    source, model = Net(), prepare(Net())
    state = {key.replace("second.weight", f"second.{name}"): value for key, value in source.state_dict().items()}
    names = set(state)
    assert f"second.{name}" in names
    model.load_state_dict(state)
    assert torch.equal(model.second.weight, source.second.weight)
    assert model.state_dict().keys() == source.state_dict().keys()
    # the given weights are not changed
    assert set(state) == names


def test_other_names_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "weight"'):
        Renamed().load_state_dict({"height": torch.zeros(3, 2)})
