"""Checks of pointers and indices; tests/test_graph.py tests the checks of user arrays through `Graph.from_edges`."""

import numpy as np
import pytest
import torch

from lazygnn.checks import first_outside, rises


@pytest.mark.parametrize(
    ("ptr", "by", "expected"),
    [
        ([0, 2, 2, 5], 0, True),
        ([0, 2, 2, 5], 1, False),
        ([0, 1, 2, 5], 1, True),
        ([1, 2, 5], 0, False),
        ([0, 2, 4], 0, False),
        ([0, 6, 5], 0, False),
        ([0], 0, False),
        ([[0, 5]], 0, False),
    ],
)
def test_pointers_rise_from_zero_to_the_end(ptr: list[int], by: int, expected: bool) -> None:
    assert rises(np.array(ptr), 5, by=by) is expected
    assert rises(torch.tensor(ptr), 5, by=by) is expected


def test_falling_unsigned_pointers_do_not_rise() -> None:
    assert not rises(np.array([0, 6, 5], dtype=np.uint64), 5)


@pytest.mark.parametrize(
    ("indices", "wrong"), [([0, 3, 1], None), ([0, 4, 7], 7), ([-1, -3, 9], -3), ([[0, 1], [4, 2]], 4), ([], None)]
)
def test_an_index_outside_the_range_is_found(indices: list[int], wrong: int | None) -> None:
    assert first_outside(np.array(indices, dtype=np.int64), 4) == wrong
    assert first_outside(torch.tensor(indices, dtype=torch.long), 4) == wrong
