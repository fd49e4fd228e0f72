"""Training from a folder that `lazygnn prepare` wrote."""

from pathlib import Path

import numpy as np
import pytest

from lazygnn import commands
from lazygnn.methods import resolve


def test_prepare_writes_a_folder_that_trains_along_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    file = tmp_path / "small.npz"
    split = rng.integers(0, 3, 200)
    np.savez(
        file,
        edge_index=rng.integers(0, 200, (2, 600)),
        x=rng.normal(size=(200, 4)),
        y=rng.integers(0, 3, 200),
        **{f"{name}_mask": split == index for index, name in enumerate(("train", "val", "test"))},
    )
    found = commands.prepare(str(file), 7, "metis", 2, out=tmp_path / "prepared")
    assert found["num_parts"] == 7
    assert found["smallest_part"] < found["largest_part"]
    assert 0 < found["edge_cut"] < 1
    assert 0 < found["mean_halo"] <= found["mean_deep_halo"]
    settings = {"num_parts": 7, "epochs": 3, "hidden_channels": 8, "dropout": 0.0}
    by_metis = commands.train(resolve("lazygnn", str(file), settings, device="cpu"), tmp_path / "a", quiet=True)
    contiguous = settings | {"partition": "contiguous", "features": "host"}
    prepared = commands.train(
        resolve("lazygnn", str(tmp_path / "prepared"), contiguous, device="cpu"), tmp_path / "b", quiet=True
    )
    # the same parts, cut from a memory-mapped graph that needs no permuting
    assert (by_metis["val"], by_metis["test"]) == (prepared["val"], prepared["test"])
