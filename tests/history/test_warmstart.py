"""What all warm starts have in common."""

import pytest
import torch
from torch import Tensor

from lazygnn.history.warmstart import Blend, WarmStart, check_beta
from lazygnn.propagation import Drift, Mix


class OnlyBeta(WarmStart):
    """A warm start that defines no halo of its own."""

    stores_inputs = False

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def blend(self, weight: float = 1.0) -> Blend:
        return Blend(self.beta, scale=weight)

    def targets(self, fresh: Tensor, stored: Tensor, previous: Tensor | None, weight: float = 1.0) -> Tensor:
        raise AssertionError("the halo was computed as targets")


def test_the_halo_weighs_the_fresh_value_by_beta() -> None:
    fresh, stored = torch.tensor([[8.0, -1.0]]), torch.tensor([[4.0, 3.0]])
    assert OnlyBeta(0.25).halo(fresh, stored).tolist() == [[5.0, 2.0]]
    assert torch.equal(OnlyBeta(0.0).halo(fresh, stored), stored)
    assert torch.equal(OnlyBeta(1.0).halo(fresh, stored), fresh)


def test_a_blend_neither_moves_nor_scales_by_default() -> None:
    assert Blend(0.3) == (0.3, 0.0, 1.0)


def test_a_warm_start_is_three_numbers() -> None:
    assert Mix(0.25).blend() == Blend(beta=0.25, move=0.0, scale=1.0)
    assert Mix(1.0).blend(0.5) == Blend(beta=1.0, move=0.0, scale=0.5)
    assert Drift(0.25).blend(0.625) == Blend(beta=0.25, move=0.5, scale=1.0)
    assert Drift(1.0).blend() == Blend(beta=1.0, move=0.0, scale=1.0)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_weights_are_shares(weight: float) -> None:
    for kind in (Mix, Drift):
        with pytest.raises(ValueError, match=r"`beta` must be in \[0, 1\], got"):
            kind(weight)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_a_share_is_accepted(beta: float) -> None:
    check_beta(beta)
