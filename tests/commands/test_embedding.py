import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn import commands
from lazygnn.commands.embedding import write_embeddings
from lazygnn.commands.loading import load_run
from lazygnn.config import Config
from lazygnn.errors import ConfigError

Configure = Callable[..., Config]


def test_embeddings_are_written_as_an_array_or_a_table(
    dataset: Path, tmp_path: Path, block_arrays: dict[str, Any], configure: Configure
) -> None:
    commands.train(configure(dataset), tmp_path / "run", quiet=True)
    expected = load_run(tmp_path / "run", device="cpu").embed().numpy()
    assert write_embeddings(tmp_path / "run", tmp_path / "all.npy", device="cpu") == (60, 8)
    assert np.array_equal(np.load(tmp_path / "all.npy"), expected)
    part = {"edge_index": np.array([[7, 9], [9, 7]]), "x": block_arrays["x"][:2], "node_ids": np.array([7, 9])}
    np.savez(tmp_path / "part.npz", **part)
    assert write_embeddings(tmp_path / "run", tmp_path / "t.csv", tmp_path / "part.npz", device="cpu") == (2, 8)
    with (tmp_path / "t.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == ["7", "9"]
    assert list(rows[0]) == ["node", *(f"channel_{index}" for index in range(8))]


def test_what_cannot_be_written_is_refused(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    with pytest.raises(ConfigError, match=r"cannot write `x.txt`; choose a name that ends in .csv or .parquet or .npy"):
        write_embeddings(tmp_path / "run", Path("x.txt"))
    commands.train(configure(dataset, "sgc"), tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match=r"a model of type SGC has no embeddings; train one of: mlp, appnp, "):
        write_embeddings(tmp_path / "run", tmp_path / "x.npy", device="cpu")
    assert not (tmp_path / "x.npy").exists()
