"""Fixtures of the experiments."""

from pathlib import Path

import pytest

from experiments import grid


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Redirects the results of grids to a temporary folder."""
    folder = tmp_path / "results"
    monkeypatch.setattr(grid, "RESULTS", folder)
    return folder
