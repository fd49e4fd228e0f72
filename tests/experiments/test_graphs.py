"""Graphs of the experiments."""

from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from experiments.graphs import SMALL, load
from lazygnn.errors import GraphError
from tests.experiments.helpers import small_graph


def test_a_file_without_features_gets_structural_ones(tmp_path: Path) -> None:
    with np.load(small_graph(tmp_path / "full.npz")) as fields:
        bare = {name: fields[name] for name in fields.files if name != "x"}
    np.savez(tmp_path / "bare.npz", **bare)
    full, found = load("full", str(tmp_path)), load("bare", str(tmp_path))
    assert isinstance(found.x, Tensor)
    assert full.in_channels == 3
    assert found.in_channels > 3
    assert found.name == "bare"
    assert found.num_train == full.num_train
    # the first column is the logarithm of the degree, with mean 0
    logarithm = found.degree.double().log1p()
    assert found.x[:, 0].tolist() == pytest.approx(
        ((logarithm - logarithm.mean()) / logarithm.std(correction=0)).tolist()
    )
    again = load("bare", str(tmp_path)).x
    assert isinstance(again, Tensor)
    assert again.equal(found.x)


def test_the_small_graph_needs_no_file_and_other_files_are_read_as_usual(tmp_path: Path) -> None:
    assert load(SMALL, None).num_nodes == 240
    (tmp_path / "broken.npz").write_text("no archive")
    with pytest.raises(GraphError, match=r"not an \.npz file"):
        load("broken", str(tmp_path))
    with pytest.raises(GraphError, match="unknown data set `gone`"):
        load("gone", str(tmp_path))
