"""Large CSV files, imported as a user would."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lazygnn.data import load_graph

NODES, EDGES = 1_000_000, 10_000_000


def import_tables(folder: Path) -> int:
    """Imports `nodes.csv` and `edges.csv` into `graph` and returns the peak of the memory, in KiB."""
    command = [sys.executable, "-m", "lazygnn", "import", "nodes.csv", "edges.csv", "--out", "graph"]
    program = f"import resource, subprocess; subprocess.run({command!r}, check=True, timeout=600)"
    program += "; print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    # in a process of its own, since the peak is that of all its children
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, check=True, capture_output=True, text=True)
    return int(done.stdout.splitlines()[-1])


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
    # columns alone take that much
    assert EDGES * 2 * 4 // 1024 < import_tables(tmp_path) < 3 * 2**20
    assert 0.999 * EDGES < load_graph(tmp_path / "graph").num_edges < EDGES


@pytest.mark.soak
def test_a_million_rows_of_twenty_columns_are_imported_in_little_more_than_their_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with (tmp_path / "nodes.csv").open("w") as file:
        names = [*(f"number-{column}" for column in range(15)), *(f"kind-{column}" for column in range(5))]
        file.write(f"id,{','.join(names)}\n")
        for start in range(0, NODES, 10_000):
            numbers, kinds = rng.normal(0, 100, (10_000, 15)).tolist(), rng.integers(0, 8, (10_000, 5)).tolist()
            for row in range(10_000):
                shown = [f"{number:.4f}" for number in numbers[row]] + [f"kind {kind}" for kind in kinds[row]]
                file.write(f"user-{start + row},{','.join(shown)}\n")
    (tmp_path / "edges.csv").write_text("source,target\nuser-0,user-1\n")
    features = NODES * 55 * 4 // 1024
    assert features < import_tables(tmp_path) < features + 800 * 1024
    assert load_graph(tmp_path / "graph").in_channels == 55
