"""Every example runs as a user would run it and learns something."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def accuracy_of(name: str, folder: Path) -> float:
    command = [sys.executable, str(EXAMPLES / name)]
    # tests run side by side; on graphs this small one thread is as fast as two
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(r"test accuracy (\d\.\d+)", done.stdout)
    assert found is not None, done.stdout
    return float(found[1])


def test_a_graph_of_ones_own_beats_its_features(tmp_path: Path) -> None:
    # an MLP on the same features reaches 0.58
    assert accuracy_of("own_graph.py", tmp_path) > 0.75


def test_lazy_propagation_in_a_pyg_loop_beats_its_features(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    # without the graph the same layers reach 0.32
    assert accuracy_of("pyg_loop.py", tmp_path) > 0.65


def test_a_lazy_block_behind_a_pyg_convolution_beats_its_features(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    # without the graph the same layers reach 0.32
    assert accuracy_of("lazy_block.py", tmp_path) > 0.65
