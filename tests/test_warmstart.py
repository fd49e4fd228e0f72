import pytest
import torch

from lazygnn.warmstart import Drift, Mix

FRESH, STORED, THEN = (torch.tensor([[value]], dtype=torch.float64) for value in (8.0, 4.0, 6.0))


def test_mix_is_the_papers_momentum() -> None:
    assert float(Mix(0.25).targets(FRESH, STORED, None)) == 0.75 * 4 + 0.25 * 8
    assert float(Mix(0.25).halo(FRESH, STORED)) == 0.75 * 4 + 0.25 * 8
    assert not Mix(0.25).keeps_inputs


def test_mix_ends_are_exact() -> None:
    odd = torch.tensor([[0.1, 1e30]])
    assert torch.equal(Mix(1.0).targets(odd, -odd, None), odd)
    assert torch.equal(Mix(0.0).targets(odd, -odd, None), -odd)


def test_drift_moves_the_stored_value_with_its_input() -> None:
    assert float(Drift().targets(FRESH, STORED, THEN)) == 4 + (8 - 6)
    assert float(Drift(0.25).targets(FRESH, STORED, THEN)) == 0.75 * 6 + 0.25 * 8
    assert Drift().keeps_inputs


def test_drift_leaves_the_halo_where_it_stands() -> None:
    assert float(Drift().halo(FRESH, STORED)) == 4
    assert float(Drift(0.25).halo(FRESH, STORED)) == 0.75 * 4 + 0.25 * 8


def test_drift_without_inputs_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="open its history with `start=Drift"):
        Drift().targets(FRESH, STORED, None)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_weights_are_shares(weight: float) -> None:
    with pytest.raises(ValueError, match=r"`weight` must lie in \[0, 1\], got"):
        Mix(weight)
    with pytest.raises(ValueError, match=r"`mix` must lie in \[0, 1\], got"):
        Drift(weight)
