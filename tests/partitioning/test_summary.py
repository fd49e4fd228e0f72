import numpy as np
import pytest

from lazygnn.data.synthetic import block_graph
from lazygnn.graph import Graph
from lazygnn.partitioning import describe, partition
from lazygnn.partitioning import summary as module


@pytest.mark.parametrize("num_layers", [0, 1, 2, 3])
@pytest.mark.parametrize("num_parts", [1, 5, 70])
def test_summary_equals_a_dense_search(
    blocks: Graph, num_parts: int, num_layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = block_graph(140, 5, degree=3, in_channels=1, num_classes=2)
    found = partition(graph, num_parts)
    monkeypatch.setattr("lazygnn.ops.csr._ENTRIES_AT_ONCE", 50)
    summary = describe(graph, found, num_layers)
    dense = graph.adj.to_dense() > 0
    halos: list[list[float]] = []
    for part in range(num_parts):
        reached = found.part_of() == part
        size, sizes = int(reached.sum()), [0.0]
        for _ in range(max(num_layers, 1)):
            reached = dense[reached].any(dim=0)
            sizes.append((int(reached.sum()) - size) / size)
        halos.append(sizes)
    assert summary.num_parts == num_parts
    assert summary.smallest_part == int(found.ptr.diff().min())
    assert summary.largest_part == int(found.ptr.diff().max())
    assert summary.edge_cut == found.edge_cut(graph.adj)
    assert summary.mean_halo == pytest.approx(np.mean([sizes[1] for sizes in halos]))
    assert summary.max_halo == pytest.approx(max(sizes[1] for sizes in halos))
    assert summary.num_layers == num_layers
    assert summary.mean_deep_halo == pytest.approx(np.mean([sizes[num_layers] for sizes in halos]))


def test_the_halos_of_many_parts_are_those_of_a_sample(blocks: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    found = partition(blocks, 600, method="contiguous")
    monkeypatch.setattr(module, "_MAX_DESCRIBED", 3)
    degree = blocks.degree - 1
    assert describe(blocks, found, 1).mean_halo == pytest.approx(float(degree[[0, 200, 400]].mean()))
    with pytest.raises(ValueError, match="`num_layers` must not be negative, got -1"):
        describe(blocks, found, -1)
