"""Checks of pointers and indices; tests/test_graph.py tests the checks of user arrays through `Graph.from_edges`."""

import numpy as np
import pytest
import torch

from lazygnn.checks import check_features, check_targets, first_outside, rises
from lazygnn.errors import GraphError
from lazygnn.graph import without_warnings


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


SPREAD = np.linspace(-1, 1, 60)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (1.7e9 + SPREAD, r"numbers around 1\.7e\+09 that differ by about 0\.587, which float32 rounds away; subtract"),
        (1e8 + SPREAD, r"numbers around 1e\+08 that differ by about 0\.587, which float32 rounds away; subtract an"),
        (np.stack((SPREAD, 1e9 + SPREAD), axis=1), r"numbers around 1e\+09 that differ by about 0\.587"),
        (2**40 + np.arange(60), r"numbers around 1\.09951e\+12 that differ by about 17\.3, which float32 rounds away"),
        (1e39 * SPREAD, r"holds -1e\+39, more than float32 can hold; scale it down"),
        (np.where(SPREAD > 0, np.inf, SPREAD), r"holds an infinite value; use NaN for a node without a target"),
    ],
    ids=["seconds", "large", "second column", "integers", "beyond", "infinite"],
)
def test_targets_that_float32_does_not_hold_are_refused(y: np.ndarray, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        check_targets(y, 60, None, "regression")


@pytest.mark.parametrize(
    "y",
    [1e4 + SPREAD, 1e20 * SPREAD, 1e-30 * SPREAD, np.full(60, 0.1), np.where(SPREAD > 0, np.nan, SPREAD)],
    ids=["offset", "large", "small", "constant", "partly unknown"],
)
def test_targets_that_float32_holds_keep_their_values(y: np.ndarray) -> None:
    target, task = check_targets(y, 60, None, "auto")
    assert task.kind == "regression"
    np.testing.assert_allclose(target[:, 0].numpy(), y, rtol=1e-7)


def test_labels_with_nan_are_not_taken_for_numbers() -> None:
    y = np.array([[0.0, 1], [1, np.nan], [np.nan, np.nan]])
    with pytest.raises(
        GraphError, match=r"shape \(3, 2\) and holds 0 and 1, but also NaN; give a row of -1 to each node"
    ):
        check_targets(y, 3, None, "auto")
    assert check_targets(y, 3, None, "regression")[1].kind == "regression"
    assert check_targets(np.array([[0.0, 1], [1, 1], [-1, -1]]), 3, None, "auto")[1].kind == "multi-label"
    assert check_targets(np.array([[0.5, 1], [1, np.nan], [0, 1]]), 3, None, "auto")[1].kind == "regression"


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_features_that_are_constant_in_float32_alone_are_warned_of(
    dtype: type, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lazygnn.checks._BLOCK_ROWS", 7)
    # seconds, a constant, an index
    x: np.ndarray = np.stack((1_700_000_000 + np.arange(20), np.full(20, 3), np.arange(20)), axis=1).astype(dtype)
    check_features(x)
    (line,) = caplog.messages
    assert line.startswith("columns 0 of `x` are constant in float32, but not as given: ")
    caplog.clear()
    with without_warnings():
        check_features(x)
    check_features(x[:, 1:])
    check_features(x.astype(np.float32))
    assert not caplog.messages


def test_features_beyond_float32_are_not_called_infinite() -> None:
    with pytest.raises(GraphError, match=r"`x` holds 1e\+39, more than float32 can hold; scale it down"):
        check_features(np.array([[1.0], [1e39]]))
    with pytest.raises(GraphError, match=r"`x` holds inf in column 0 \(1 such values\); replace or remove"):
        check_features(np.array([[1.0], [np.inf]]))
