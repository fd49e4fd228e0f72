"""Bytes per row of a halo, by hand."""

import pytest
import torch

from experiments import wire


def test_lazy_rows_are_sent_once_in_the_type_of_the_wire() -> None:
    assert wire.lazy(47) == 47 * 4
    assert wire.lazy(47, torch.bfloat16) == 47 * 2
    # a scale for every row
    assert 47 < wire.lazy(47, torch.int8) <= 47 + 4
    assert wire.lazy(47, gradients=True) == 2 * wire.lazy(47)


def test_others_send_rows_and_gradients_in_every_step_or_layer() -> None:
    assert wire.appnp(47) == 3760
    assert wire.pipegcn() == 2048
    assert wire.bns() == pytest.approx(204.8)


def test_a_tenth_of_exact_steps_and_half_of_pipegcn_on_products() -> None:
    assert wire.lazy(47, gradients=True) <= wire.appnp(47) / 10
    assert wire.lazy(47, gradients=True) <= wire.pipegcn() / 2
