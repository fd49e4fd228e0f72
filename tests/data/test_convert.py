import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from lazygnn.data import load_graph
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.ops.csr import Csr
from tests.helpers import random_graph, random_matrix

NOTHING: Any = "cora"


def same_graph(first: Graph, second: Graph) -> None:
    torch.testing.assert_close(first.adj.to_dense(), second.adj.to_dense())
    torch.testing.assert_close(first.degree, second.degree)
    assert isinstance(first.x, Tensor)
    assert isinstance(second.x, Tensor)
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.y, second.y)
    assert first.task == second.task
    assert all(torch.equal(first.masks[split], second.masks[split]) for split in {*first.masks, *second.masks})


def weighted() -> Graph:
    """A graph with weights, ids and a self-loop of its own."""
    rng = np.random.default_rng(0)
    edges, weight = rng.integers(0, 12, (2, 30)), rng.uniform(0.5, 2, 30)
    edges[:, 0], weight[0] = 3, 2.5
    y = rng.integers(0, 3, 12)
    ids = np.arange(12)[::-1].copy()
    masks = {"train_mask": y > 0, "val_mask": y == 0}
    return Graph.from_edges(ids[edges], rng.normal(size=(12, 2)), y, edge_weight=weight, node_ids=ids, **masks)


def test_attributes_of_networkx_are_columns() -> None:
    network = nx.path_graph(4)
    nx.set_node_attributes(network, {0: "a", 1: "b", 2: "a", 3: "b"}, "label")
    nx.set_node_attributes(network, {0: np.float64(1.0), 1: 2.0, 3: 3.0}, "size")
    network.add_edge(0, 3, weight=2.0)
    graph = Graph.from_networkx(network, name="path", ratio=(1, 0, 0))
    assert (graph.num_nodes, graph.num_edges, graph.name, graph.class_names) == (4, 4, "path", ("a", "b"))
    assert graph.degree.tolist() == [4, 3, 3, 4]
    assert graph.schema is not None
    assert graph.schema.feature_names() == ["size", "size is missing"]
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == [0, 1, 2, 3]


def test_a_list_of_numbers_is_a_column_for_each() -> None:
    network = nx.path_graph(3)
    nx.set_node_attributes(network, {0: [1.0, 5.0], 1: np.array([2.0, 6.0]), 2: (3.0, 7.0)}, "x")
    graph = Graph.from_networkx(network)
    assert graph.schema is not None
    assert graph.schema.feature_names() == ["x_0", "x_1"]
    assert isinstance(graph.x, Tensor)
    torch.testing.assert_close(graph.x[:, 0], graph.x[:, 1])
    del network.nodes[1]["x"]
    missing = Graph.from_networkx(network).schema
    assert missing is not None
    assert missing.feature_names() == ["x_0", "x_0 is missing", "x_1", "x_1 is missing"]
    for wrong in ([1.0], 1.0):
        network.nodes[1]["x"] = wrong
        with pytest.raises(GraphError, match=r"the attribute `x` is a list for some nodes, but not of the same length"):
            Graph.from_networkx(network)
    network.nodes[1].update({"x": [1.0, 2.0], "x_0": 3.0})
    with pytest.raises(GraphError, match=r"two attributes become the column `x_0`; rename one of them"):
        Graph.from_networkx(network)


def test_networkx_without_attributes_has_structural_features() -> None:
    graph = Graph.from_networkx(nx.Graph([("u", "v"), (("a", 1), "u")]), structural=True)
    assert graph.in_channels == 33
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["u", "v", "('a', 1)"]


def test_wrong_networks_are_refused() -> None:
    with pytest.raises(GraphError, match=r"`graph` is 'cora', of type str; give a NetworkX graph"):
        Graph.from_networkx(NOTHING)
    network = nx.Graph()
    network.add_node(0, id=1, node=2, node_id=3)
    with pytest.raises(GraphError, match=r"the nodes have the attributes `id`, `node` and `node_id`; rename one"):
        Graph.from_networkx(network)


def test_a_sparse_matrix_is_the_adjacency() -> None:
    matrix = scipy.sparse.csr_array(np.array([[0, 2.0, 0], [2.0, 0, 1], [0, 1, 0]]))
    graph = Graph.from_scipy(matrix, np.eye(3), node_ids=[7, 8, 9])
    assert graph.degree.tolist() == [3, 4, 2]
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == [7, 8, 9]
    ones = scipy.sparse.coo_matrix(np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]))
    plain = Graph.from_scipy(ones, np.eye(3), np.array([0, 1, 0]))
    assert plain.degree.tolist() == [2, 3, 2]
    assert plain.y.tolist() == [0, 1, 0]


@pytest.mark.parametrize("kind", ["coo", "csr", "csc"])
def test_an_entry_in_several_parts_is_their_sum(kind: str) -> None:
    row, col, value = [0, 1, 0, 1, 1, 2, 0, 2], [1, 0, 1, 0, 2, 1, 2, 0], [1.0, 1, 1, 1, 1, 1, 0, 0]
    if kind == "coo":
        matrix: Any = scipy.sparse.coo_array((value, (row, col)), shape=(3, 3))
    else:
        order = np.lexsort((col, row) if kind == "csr" else (row, col))
        rows, cols = np.array(row)[order], np.array(col)[order]
        first, second = (rows, cols) if kind == "csr" else (cols, rows)
        make = scipy.sparse.csr_array if kind == "csr" else scipy.sparse.csc_array
        matrix = make((np.array(value)[order], second, np.searchsorted(first, np.arange(4))), shape=(3, 3))
    stored = matrix.nnz
    expected = Graph.from_scipy(scipy.sparse.csr_array(matrix.toarray()), np.eye(3))
    assert torch.equal(Graph.from_scipy(matrix, np.eye(3)).adj.to_dense(), expected.adj.to_dense())
    assert expected.degree.tolist() == [3, 4, 2]
    # the matrix of the caller is as it was
    assert matrix.nnz == stored == 8


@pytest.mark.parametrize(
    ("matrix", "rest", "message"),
    [
        (np.eye(3), {}, r"`adjacency` is of type ndarray and shape \(3, 3\); give a sparse matrix of SciPy"),
        (scipy.sparse.csr_array((2, 3)), {}, r"`adjacency` has shape \(2, 3\); give a row and a column for every node"),
        (scipy.sparse.csr_array((2, 2)), {}, r"`adjacency` has 2 rows, but `x` has 3; give a row for every node"),
        (scipy.sparse.eye_array(3), {"edge_weight": 1}, r"`edge_weight` is in the entries of `adjacency`; omit it"),
    ],
)
def test_wrong_matrices_are_refused(matrix: Any, rest: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_scipy(matrix, np.ones((3, 1)), **rest)


@pytest.mark.parametrize("make", [weighted, lambda: random_graph(12, 20).to(torch.float32)])
def test_a_graph_survives_pyg(make: Any) -> None:
    pytest.importorskip("torch_geometric")
    graph: Graph = make()
    data = graph.to_pyg()
    same_graph(Graph.from_data(data), graph)
    assert ("edge_weight" in data) == (graph.node_ids is not None)
    if graph.node_ids is not None:
        assert data.node_ids == graph.node_ids.tolist()


def test_sparse_features_survive_pyg() -> None:
    pytest.importorskip("torch_geometric")
    x = random_matrix(12, 5, dtype=torch.float32)
    # columns need not be sorted
    for features in (x, Csr(x.rowptr, x.col.flip(0), x.value, x.num_cols)):
        graph = Graph.from_edges(np.array([[0, 1], [1, 0]]), features)
        assert torch.equal(graph.to_pyg().x.to_dense(), features.to_dense())


def test_sparse_features_reach_pyg_without_a_warning() -> None:
    pytest.importorskip("torch_geometric")
    # torch warns of its sparse tensors once in a process
    code = (
        "import warnings, numpy as np, torch, torch_geometric.data\n"
        "from lazygnn import Graph\n"
        "from lazygnn.ops.csr import Csr\n"
        "warnings.simplefilter('error')\n"
        "x = Csr(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2), 2)\n"
        "print(Graph.from_edges(np.array([[0], [1]]), x).to_pyg().x.to_dense().tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[[1.0, 0.0], [0.0, 1.0]]\n", "")


@pytest.mark.parametrize("name", ["mine.npz", "mine"])
@pytest.mark.parametrize("make", [weighted, lambda: random_graph(12, 20).to(torch.float32)])
def test_a_saved_graph_is_loaded_again(tmp_path: Path, make: Any, name: str, caplog: pytest.LogCaptureFixture) -> None:
    graph: Graph = make()
    caplog.clear()
    graph.save(tmp_path / name)
    loaded = load_graph(tmp_path / name)
    same_graph(loaded, graph)
    assert (loaded.node_ids is None) == (graph.node_ids is None)
    if loaded.node_ids is not None and graph.node_ids is not None:
        assert loaded.node_ids.tolist() == graph.node_ids.tolist()
    assert not caplog.records
