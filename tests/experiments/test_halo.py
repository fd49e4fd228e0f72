"""Halos of partitions against a count by sets."""

from pathlib import Path

import numpy as np
import pytest

from experiments import halo
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.partitioning import partition
from tests.experiments.helpers import small_graph


@pytest.mark.parametrize("num_parts", [1, 2, 7])
def test_rows_are_counted_once_for_every_part_that_needs_them(block_graph: Graph, num_parts: int) -> None:
    parts = partition(block_graph, num_parts, method="random")
    found = halo.measure(block_graph, parts)
    part_of, rows = parts.part_of().tolist(), 0
    dense = block_graph.adj.to_dense() > 0
    for part in range(num_parts):
        own = {node for node in range(60) if part_of[node] == part}
        around = {other for node in own for other in dense[node].nonzero()[:, 0].tolist()}
        rows += len(around - own)
    assert found.rows == rows
    assert found.per_node == rows / 60
    assert found.cut == parts.edge_cut(block_graph.adj)


def test_a_graph_without_features_makes_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(halo, "ENGINES", ("metis", "random"))
    with np.load(small_graph(tmp_path / "full.npz")) as arrays:
        np.savez(tmp_path / "bare.npz", edge_index=arrays["edge_index"], y=arrays["y"])
    summary = halo.main(str(tmp_path), ("bare",), (2, 4))
    assert [row.label for row in summary.rows] == ["bare, 2", "bare, 4"]
    cells = [cell["value"] for cell in summary.rows[1].cells if cell is not None]
    rows = 60 * cells[2]
    # two classes
    assert cells[4:] == pytest.approx([rows * size / 1e6 for size in (8, 16, 160, 2048, 204.8)])
    assert len(summary.markdown().splitlines()) == 4


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"no file `.*none.npz`; set `--root`"):
        halo.load_structure("none", str(tmp_path))
