"""Data sets and configurations for tests of the commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.config import Config, TrainerOptions
from lazygnn.methods import METHODS, resolve


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these trainings; tests/cli/test_training.py trains with a picture."""
    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: None)


@pytest.fixture
def dataset(tmp_path: Path, block_arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """An .npz file in the working directory."""
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "block.npz", **block_arrays)
    return tmp_path / "block.npz"


@pytest.fixture
def configure() -> Callable[..., Config]:
    """Resolves a short training; values that a method does not have are left out."""

    def configured(dataset: Path | str, method: str = "lazygnn", **values: Any) -> Config:
        known = METHODS[method].options.model_fields.keys() | TrainerOptions.model_fields.keys()
        wanted = {"epochs": 3, "hidden_channels": 8} | values
        return resolve(method, str(dataset), {key: wanted[key] for key in wanted if key in known}, device="cpu")

    return configured
