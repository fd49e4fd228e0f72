from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from lazygnn.data import sorted_folder
from lazygnn.data.folder import load_folder, save_folder
from lazygnn.data.sorted_folder import save_sorted
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.ops import Csr


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("at_once", [1, 7, 1 << 22])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_folder_is_that_of_a_permuted_graph(
    sparse: bool, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    matrix = scipy.sparse.csr_matrix((rng.random((40, 5)) * (rng.random((40, 5)) < 0.4)).astype(np.float32))
    features = Csr.from_arrays(matrix.indptr, matrix.indices, matrix.data, 5) if sparse else matrix.toarray()
    graph = Graph.from_edges(
        rng.integers(0, 40, (2, 90)),
        features,
        rng.integers(0, 3, 40),
        edge_weight=rng.random(90),
        train_mask=np.arange(40) < 20,
        test_mask=np.arange(40) > 30,
        node_ids=[f"node {i}" for i in range(40)],
    )
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    parts = {"part_ptr": torch.tensor([0, 10, 40]), "part_engine": "kaminpar 3.7.3"}
    save_folder(replace(graph.permute(order), **parts), tmp_path / "permuted")  # type: ignore[arg-type]
    monkeypatch.setattr("lazygnn.ops.csr._ENTRIES_AT_ONCE", at_once)
    monkeypatch.setattr(sorted_folder, "_NUMBERS_AT_ONCE", at_once)
    save_sorted(replace(graph, **parts), order, tmp_path / "sorted")  # type: ignore[arg-type]
    expected, found = files(tmp_path / "permuted"), files(tmp_path / "sorted")
    assert expected.keys() == found.keys()
    # a file that is written in blocks has more room for its length, so values are compared, not bytes
    for name in expected:
        if name.endswith(".npy"):
            one, other = (np.load(tmp_path / folder / name) for folder in ("permuted", "sorted"))
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    assert load_folder(tmp_path / "sorted").part_engine == "kaminpar 3.7.3"


def test_a_mapped_graph_may_replace_its_own_folder(block_graph: Graph, tmp_path: Path) -> None:
    save_folder(block_graph, tmp_path / "graph")
    order = torch.arange(60).flip(0)
    save_sorted(load_folder(tmp_path / "graph"), order, tmp_path / "graph")
    assert torch.equal(load_folder(tmp_path / "graph").y, block_graph.y.flip(0))


def test_another_folder_is_left_alone(block_graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(GraphError, match=r"holds `notes.txt`, which does not belong to a graph"):
        save_sorted(block_graph, torch.arange(60), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
