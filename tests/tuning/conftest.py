"""A graph for trials."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.tuning.trial import Subject

FIXED = {"epochs": 4, "hidden_channels": 4}


@pytest.fixture
def subject(tmp_path: Path, block_arrays: dict[str, Any]) -> Subject:
    """An MLP on a graph of sixty nodes."""
    np.savez(tmp_path / "block.npz", **block_arrays)
    return Subject("mlp", str(tmp_path / "block.npz"), fixed=FIXED)
