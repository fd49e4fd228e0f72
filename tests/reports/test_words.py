from typing import Any

import pytest

from lazygnn.reports import Entry
from lazygnn.reports.words import split_name, summarize


def test_classes_are_summarized(entries: dict[str, Entry]) -> None:
    report = entries["single-label"].report
    said = summarize(report)
    accuracy = 100 * report["scores"]["accuracy"]["test"]
    assert said[0] == (
        f"{accuracy:.1f} % of 100 test nodes are predicted right; "
        "the most frequent class alone would be right for 30.0 %."
    )
    assert any(one.startswith("The weakest class is never (F1 0.000, ") for one in said)
    assert "Never predicted: never. The option class_weight=balanced may help." in said
    assert any(one.startswith("By share of neighbors with the same label, the hardest group is '") for one in said)


def test_labels_and_numbers_are_summarized(entries: dict[str, Entry]) -> None:
    said = summarize(entries["multi-label"].report)
    assert said[0].startswith("Micro F1 is 0.")
    assert said[0].endswith(" test nodes. Labels with a probability above 0.5 are predicted.")
    lower = summarize({**entries["multi-label"].report, "threshold": 0.25})
    assert lower[0].endswith("Labels with a probability above 0.25 are predicted.")
    assert any("weakest label" in one for one in said)
    said = summarize(entries["regression"].report)
    assert said[0].startswith("On 100 test nodes the mean absolute error is 2")
    assert said[0].endswith(" % of the variance (R2).")
    assert any(one.startswith("Predictions of output red are too ") for one in said)
    assert not any("robabilities" in one for one in said)


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [
        (2.5, "the model is too sure: a temperature of 2.50 makes that 1.0 points."),
        (0.5, "the model is not sure enough: a temperature of 0.50 makes that 1.0 points."),
        (1.01, "and a temperature fitted on validation nodes would hardly change them."),
        (None, "No temperature is fitted: validation has no nodes, or all are predicted right."),
    ],
)
def test_calibration_is_told(entries: dict[str, Entry], temperature: float | None, expected: str) -> None:
    after = None if temperature is None else {"error": 0.01}
    found: dict[str, Any] = {"temperature": temperature, "before": {"error": 0.123}, "after": after}
    (said,) = (
        one for one in summarize({**entries["single-label"].report, "calibration": found}) if "12.3 points" in one
    )
    assert said.endswith(expected)


def test_splits_have_names() -> None:
    assert [split_name(split) for split in ("train", "val", "test")] == ["training", "validation", "test"]
