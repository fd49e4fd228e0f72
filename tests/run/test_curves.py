"""Training curves."""

from pathlib import Path
from typing import Any

import pytest

from lazygnn.run.curves import plot_curves


def log(epochs: int, *, scored: bool = True) -> list[dict[str, Any]]:
    scores = {"val": 0.5} if scored else None
    return [{"epoch": epoch, "loss": 1 / epoch, "scores": scores} for epoch in range(1, epochs + 1)]


@pytest.mark.parametrize(
    "curves", [{}, {"lazygnn": []}, {"lazygnn": log(1, scored=False)}, {"a": log(20), "b": log(5)}]
)
def test_curves_of_any_length_are_drawn(tmp_path: Path, curves: dict[str, Any]) -> None:
    plot_curves(curves, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
