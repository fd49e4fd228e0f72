"""The warm start of our default: the stored solution moves with its input."""

import pytest
import torch

from lazygnn.propagation import Drift

FRESH, STORED, PREVIOUS = (torch.tensor([[value]], dtype=torch.float64) for value in (8.0, 4.0, 6.0))


def test_drift_moves_the_stored_value_with_its_input() -> None:
    assert float(Drift().targets(FRESH, STORED, PREVIOUS)) == 4 + (8 - 6)
    assert float(Drift(0.25).targets(FRESH, STORED, PREVIOUS)) == 0.75 * 6 + 0.25 * 8
    assert Drift().stores_inputs


def test_drift_leaves_the_halo_at_its_stored_value() -> None:
    assert float(Drift().halo(FRESH, STORED)) == 4
    assert float(Drift(0.25).halo(FRESH, STORED)) == 0.75 * 4 + 0.25 * 8


def test_drift_without_inputs_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="open its history with `start=Drift"):
        Drift().targets(FRESH, STORED, None)
