"""Memory of a partition: watched, and in proportion."""

import json
import sys
from pathlib import Path

import pytest

from experiments import partition_memory
from experiments.partition_memory import Measured
from experiments.scale_out import PAPERS
from lazygnn.data.synthetic import block_graph


def test_the_memory_of_all_processes_counts() -> None:
    child = "import time; held = bytearray(100_000_000); time.sleep(1.5)"
    parent = f"import subprocess, sys; held = bytearray(50_000_000); subprocess.run([sys.executable, '-c', {child!r}])"
    printed, resident = partition_memory.watch([sys.executable, "-c", f"{parent}; print('done')"], {})
    assert printed == "done\n"
    assert 150_000_000 < resident < 300_000_000
    with pytest.raises(RuntimeError, match=r"` has ended with status 3"):
        partition_memory.watch([sys.executable, "-c", "import sys; sys.exit(3)"], {})


def test_a_table_has_a_row_for_every_run_and_one_of_arithmetic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = block_graph(60, 3, degree=4, in_channels=2, num_classes=2)
    graph.save(tmp_path / "small")
    entries, seen = len(graph.adj.col), []

    def watch(words: list[str], environment: dict[str, str]) -> tuple[str, int]:
        assert Path(environment["LAZYGNN_CACHE"]).parent == tmp_path
        seen.append(words[3:])
        return json.dumps({"partition_engine": "kaminpar 3.7.3", "edge_cut": 0.25}), 30 * entries

    monkeypatch.setattr(partition_memory, "watch", watch)
    summary = partition_memory.main([tmp_path / "small"], ["kaminpar"], [2, 3])
    option = ["--num-parts", "2", "--partition", "kaminpar", "--num-layers", "1"]
    assert seen[0] == ["prepare", str(tmp_path / "small"), *option]
    assert [row.label for row in summary.rows] == ["small", "small", "papers100M, by these constants"]
    lines = summary.markdown().splitlines()
    assert lines[2] == "| small | kaminpar 3.7.3 | 2 | 0 | 0.250 | 0.0 | 0.0 | 30 |"
    assert lines[4].endswith(f"| 3,342 | - | 0.0 | {30 * PAPERS.entries / 1e9:.1f} | 30 |")


def test_the_costliest_run_is_extended_in_proportion() -> None:
    cheap, costly = Measured("a", 10, 2000, 0.1, 5.0, 10_000), Measured("b", 50, 1000, 0.2, 4.0, 20_000)
    found = partition_memory.at_papers100m([cheap, costly])
    assert (found.engine, found.num_parts, found.entries, found.cut) == ("b", 50, PAPERS.entries, None)
    assert found.resident == 20 * PAPERS.entries
    assert found.seconds == pytest.approx(0.004 * PAPERS.entries)
