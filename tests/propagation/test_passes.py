"""The warm start of the paper, Eqs. (6) and (13)."""

import pytest
import torch

from lazygnn.propagation import Drift, Mix

FRESH, STORED, PREVIOUS = (torch.tensor([[value]], dtype=torch.float64) for value in (8.0, 4.0, 6.0))


def test_mix_is_the_papers_momentum() -> None:
    assert float(Mix(0.25).targets(FRESH, STORED, None)) == 0.75 * 4 + 0.25 * 8
    assert float(Mix(0.25).halo(FRESH, STORED)) == 0.75 * 4 + 0.25 * 8
    assert not Mix(0.25).stores_inputs


def test_mix_ends_are_exact() -> None:
    odd = torch.tensor([[0.1, 1e30]])
    assert torch.equal(Mix(1.0).targets(odd, -odd, None), odd)
    assert torch.equal(Mix(0.0).targets(odd, -odd, None), -odd)


def test_a_change_of_the_input_may_enter_by_a_part() -> None:
    # the rest of the start is a quarter of the input of then
    assert float(Drift(0.25).targets(FRESH, STORED, PREVIOUS, 0.5)) == 0.75 * 4 + 0.25 * 6 + 0.5 * (8 - 6)
    with pytest.raises(ValueError, match=r"ignores its history, so the weight of a change must be 1, got 0\.5"):
        Drift(1.0).targets(FRESH, STORED, PREVIOUS, 0.5)
    assert float(Mix(1.0).targets(FRESH, STORED, None, 0.5)) == 0.5 * 8
    with pytest.raises(ValueError, match=r"stores no inputs, so the weight of a change must be 1, got 0\.5"):
        Mix(0.25).targets(FRESH, STORED, None, 0.5)
