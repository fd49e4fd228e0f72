"""Cells of the staleness tables."""

from typing import Any

import pytest

from experiments.compare import at_equal_time, difference, last_diagnostics, mean_difference


def test_a_difference_has_its_standard_error_and_the_ratio_of_deviations() -> None:
    # deviations of 2 and 1 percent, and of none
    wide, narrow, same = [0.78, 0.80, 0.82], [0.78, 0.79, 0.80], [0.9, 0.9, 0.9]
    found = difference(wide, narrow)
    error = (5 / 3) ** 0.5
    assert found == {"mean": pytest.approx(1), "error": pytest.approx(error), "spread": pytest.approx(2), "seeds": 3}
    assert difference(narrow, wide)["spread"] == pytest.approx(0.5)
    level = difference(same, same)
    assert level == {"mean": 0, "error": 0, "spread": None, "seeds": 3}
    assert mean_difference([found, level]) == {"mean": pytest.approx(0.5), "error": pytest.approx(error / 2)}


def log(step: float, *scores: float | None) -> list[dict[str, Any]]:
    # the first line compiles, and its time does not count
    return [{"seconds": 9.0 if at == 0 else step, "scores": v and {"val": v}} for at, v in enumerate(scores)]


def run(log: list[dict[str, Any]], **setting: Any) -> dict[str, Any]:
    return {"machine": "a GPU", "commit": "abc", "epochs": 40, "log": log} | setting


def cells(*runs: dict[str, Any]) -> list[Any]:
    return [cell and (cell["mean"], cell["seconds"]) for cell in at_equal_time(runs)]


def test_cases_are_compared_within_the_time_of_the_fastest() -> None:
    fast, slow = run(log(1.0, 0.5, 0.6, 0.7, 0.65)), run(log(2.0, 0.4, 0.8, None, 0.9))
    assert cells(fast, slow) == [(70, 3), (80, 6)]
    assert cells(fast, run(log(2.0, None, None, 0.9))) == [(70, 3), (None, 4)]
    # times that are not comparable have no cell, nor has a run without a log
    others: list[dict[str, Any]] = [{"machine": "a CPU"}, {"commit": "def"}, {"epochs": 20}, {"log": []}]
    for other in others:
        assert cells(fast, slow | other) == [(70, 3), None]
    assert cells(fast | {"log": []}, slow) == [None, (90, 6)]


def test_the_last_diagnostics_are_shown_as_far_as_known() -> None:
    full = {"fixed_point_error": 0.123, "gradient_cosine": 0.987, "gradient_length": 1.1}
    assert last_diagnostics([{"laziness": None}, {"laziness": full}]) == full
    # parts are differentiated one by one
    parts = {"fixed_point_error": 0.05, "gradient_cosine": None, "gradient_length": None}
    assert last_diagnostics([{"laziness": full}, {"laziness": {"fixed_point_error": 0.05}}]) == parts
    assert last_diagnostics([{"laziness": None}]) is None
    assert last_diagnostics([]) is None
