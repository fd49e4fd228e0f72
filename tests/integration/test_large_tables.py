"""Ten million edges in a CSV file, imported as a user would."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lazygnn.data import load_graph

NODES, EDGES = 1_000_000, 10_000_000


@pytest.mark.soak
def test_ten_million_edges_are_imported_in_three_gigabytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with (tmp_path / "nodes.csv").open("w") as file:
        file.write("id,size\n")
        file.writelines(f"user-{number},{number % 100}\n" for number in range(NODES))
    with (tmp_path / "edges.csv").open("w") as file:
        file.write("source,target\n")
        for _ in range(10):
            ends = rng.integers(0, NODES, (EDGES // 10, 2)).tolist()
            file.writelines(f"user-{first},user-{second}\n" for first, second in ends)
    command = [sys.executable, "-m", "lazygnn", "import", "nodes.csv", "edges.csv", "--out", "graph"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert before < peak < 3 * 2**20
    assert 0.999 * EDGES < load_graph(tmp_path / "graph").num_edges < EDGES
