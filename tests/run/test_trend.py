from typing import Any

import pytest

from lazygnn.run.trend import still_rising


def log_of(scores: dict[int, float | None], last: int) -> list[dict[str, Any]]:
    return [
        {"epoch": epoch, "scores": None if scores.get(epoch) is None else {"train": 1.0, "val": scores[epoch]}}
        for epoch in range(1, last + 1)
    ]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({10: 0.5, 90: 0.7, 100: 0.71}, (0.7, 0.71)),
        ({10: 0.5, 90: 0.7, 100: 0.701}, None),
        ({10: 0.8, 90: 0.7, 100: 0.75}, None),
        ({95: 0.7, 100: 0.75}, None),
        ({10: 0.5}, None),
        ({}, None),
    ],
)
def test_a_gain_in_the_last_tenth_is_a_rise(scores: dict[int, float | None], expected: tuple[float, float]) -> None:
    assert still_rising(log_of(scores, 100), 100) == expected


def test_a_run_that_ended_before_its_last_epoch_is_not_judged() -> None:
    log = log_of({10: 0.5, 19: 0.7, 20: 0.9}, 20)
    assert still_rising(log, 20) == (0.5, 0.9)
    assert still_rising(log, 30) is None


def test_no_log_and_no_validation_split_say_nothing() -> None:
    assert still_rising([], 0) is None
    assert still_rising([{"epoch": 1, "scores": {"train": 1.0}}], 1) is None


@pytest.mark.parametrize(("last", "expected"), [(70.0, (80.0, 70.0)), (79.9, None), (90.0, None)])
def test_an_error_improves_by_falling(last: float, expected: tuple[float, float] | None) -> None:
    # whatever the unit of the targets
    for unit in (1.0, 1e-6, 1e6):
        found = still_rising(log_of({10: 95.0 * unit, 90: 80.0 * unit, 100: last * unit}, 100), 100, "mae")
        assert found == (None if expected is None else (expected[0] * unit, expected[1] * unit))


def test_an_error_of_zero_cannot_fall() -> None:
    assert still_rising(log_of({90: 0.0, 100: 0.0}, 100), 100, "rmse") is None


@pytest.mark.parametrize(("last", "expected"), [(-1.5, (-2.0, -1.5)), (-1.999, None), (-2.5, None)])
def test_r2_rises_below_zero_too(last: float, expected: tuple[float, float] | None) -> None:
    assert still_rising(log_of({90: -2.0, 100: last}, 100), 100, "r2") == expected
