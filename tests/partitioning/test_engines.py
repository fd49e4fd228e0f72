import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lazygnn.graph import Graph
from lazygnn.partitioning import engines
from lazygnn.partitioning.engines import kaminpar_parts, metis_parts, read_graph_file
from lazygnn.partitioning.process import write_graph_file
from tests.partitioning.helpers import graph_of


@pytest.mark.parametrize("weights", [None, np.array([5, 1, 1, 7])], ids=["plain", "weighted"])
@pytest.mark.parametrize("edges", [[(0, 1), (1, 2), (3, 3)], []], ids=["edges", "none"])
def test_a_file_gives_back_the_graph(tmp_path: Path, edges: list[tuple[int, int]], weights: np.ndarray | None) -> None:
    write_graph_file(graph_of(edges, 4).adj, tmp_path / "graph", weights)
    rowptr, col, found = read_graph_file(tmp_path / "graph")
    assert rowptr.tolist() == ([0, 1, 3, 4, 4] if edges else [0] * 5)
    assert col.tolist() == ([1, 0, 2, 1] if edges else [])
    assert (None if found is None else found.tolist()) == (None if weights is None else weights.tolist())


def test_metis_cuts_a_path_in_the_middle_of_its_weight() -> None:
    rowptr, col = np.array([0, 1, 3, 5, 6]), np.array([1, 0, 2, 1, 3, 2])
    assert len(set(metis_parts(rowptr, col, 2, 0, None)[[0, 1]])) == 1
    heavy_end = metis_parts(rowptr, col, 2, 0, np.array([1, 1, 1, 3]))
    assert len(set(heavy_end[:3])) == 1
    assert heavy_end[3] != heavy_end[0]


def test_kaminpar_reads_the_file_with_its_weights(tmp_path: Path) -> None:
    pytest.importorskip("kaminpar")
    path = graph_of([(0, 1), (1, 2), (2, 3)], 4)
    write_graph_file(path.adj, tmp_path / "graph", np.array([1, 1, 1, 3]))
    found = kaminpar_parts(tmp_path / "graph", 2, 0)
    assert len(set(found[:3])) == 1
    assert found[3] != found[0]


def test_it_imports_one_engine_alone() -> None:
    code = (
        "import runpy, sys, pathlib\n"
        f"runpy.run_path({engines.__file__!r}, run_name='engines')\n"
        "print([name for name in ('torch', 'lazygnn', 'pymetis', 'kaminpar') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot end a process with its parent")
def test_a_process_ends_with_its_parent(tmp_path: Path, blocks: Graph) -> None:
    # the parent starts a process that sleeps where the engine would run, says its number, and is killed
    child = (
        "import runpy, sys, time\n"
        f"names = runpy.run_path({engines.__file__!r}, run_name='engines')\n"
        "names['_end_with'](int(sys.argv[1]))\nprint('ready', flush=True)\ntime.sleep(600)"
    )
    parent = (
        "import os, subprocess, sys, time\n"
        f"one = subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())], stdout=subprocess.PIPE)\n"
        "one.stdout.readline()\nprint(one.pid, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        number = int(started.stdout.readline())
        started.kill()
    until = time.monotonic() + 120
    while _runs(number) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(number)


def _runs(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
