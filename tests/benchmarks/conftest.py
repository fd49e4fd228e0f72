"""Fixtures of the benchmarks."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from lazygnn import ops


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    # files of real data sets must not be read
    monkeypatch.setenv("LAZYGNN_DATA", str(tmp_path))


@pytest.fixture
def wrong_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the library's kernels wrong by one percent; plain PyTorch remains right."""

    def spoil(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def spoilt(*args: Any, **options: Any) -> Tensor:
            plain = os.environ.get("LAZYGNN_KERNELS") == "reference"
            return function(*args, **options) * (1.0 if plain else 0.99)

        return spoilt

    for name in ("step", "run_steps"):
        monkeypatch.setattr(ops, name, spoil(getattr(ops, name)))
