"""Fixtures of the experiments."""

from pathlib import Path

import pytest

from experiments import grid
from tests import processes


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Redirects the results of grids to a temporary folder, and starts their workers at once."""
    folder = tmp_path / "results"
    monkeypatch.setattr(grid, "RESULTS", folder)
    monkeypatch.setattr(grid, "get_context", lambda _: processes.context())
    return folder
