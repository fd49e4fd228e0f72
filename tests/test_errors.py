"""The messages of errors that many modules raise."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from lazygnn.errors import CheckpointError, ConfigError, GraphError, check_number, wrong_type


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("cora", "`graph` is 'cora', of type str"),
        (None, "`graph` is None, of type NoneType"),
        (torch.ones(2, 7), "`graph` is of type Tensor and shape (2, 7)"),
        (np.ones(3), "`graph` is of type ndarray and shape (3,)"),
        # a long value does not hide the remedy
        (list(range(100)), "`graph` is of type list"),
    ],
)
def test_a_wrong_type_is_described_by_value_type_and_remedy(value: object, found: str) -> None:
    assert wrong_type("graph", value, "give a graph") == f"{found}; give a graph"


@pytest.mark.parametrize("value", [0, -3, 2.5, float("nan"), np.float32(0.5), np.int64(2), Fraction(1, 3)])
def test_every_real_number_is_a_number(value: Any) -> None:
    check_number("alpha", value)


@pytest.mark.parametrize("value", ["0.1", None, 1j, True, [1]])
def test_what_is_not_a_number_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"`alpha` is .*, of type \w+; give a number"):
        check_number("alpha", value)


def test_whole_numbers_exclude_fractions_and_booleans() -> None:
    for value in (3, np.int64(3)):
        check_number("seed", value, whole=True)
    for wrong in (3.0, True, np.float64(3)):
        with pytest.raises(ConfigError, match=r"`seed` is .*; give a whole number"):
            check_number("seed", wrong, whole=True)


def test_wrong_graphs_and_options_are_value_errors() -> None:
    assert issubclass(GraphError, ValueError)
    assert issubclass(ConfigError, ValueError)
    assert issubclass(CheckpointError, RuntimeError)
