"""Training curves."""

from pathlib import Path
from typing import Any

import pytest

from lazygnn.run.curves import plot_comparison, plot_curves


def log(epochs: int, *, scored: bool = True) -> list[dict[str, Any]]:
    scores = {"val": 0.5} if scored else None
    return [{"epoch": epoch, "loss": 1 / epoch, "seconds": 0.5, "scores": scores} for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize(
    "curves", [{}, {"lazygnn": []}, {"lazygnn": log(1, scored=False)}, {"a": log(20), "b": log(5)}]
)
def test_curves_of_any_length_are_drawn(tmp_path: Path, curves: dict[str, Any]) -> None:
    plot_curves(curves, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "curves",
    [
        {},
        {"unscored": [log(3, scored=False)], "empty": [[]]},
        {"one point": [log(1)], "two seeds of unequal length": [log(20), log(5)]},
        {f"more than colors {index}": [log(2)] for index in range(9)},
    ],
    ids=["nothing", "no scores", "several seeds", "many"],
)
def test_comparisons_of_any_size_are_drawn(tmp_path: Path, curves: dict[str, Any]) -> None:
    plot_comparison(curves, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
