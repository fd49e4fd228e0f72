import logging
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.errors import GraphError
from lazygnn.graph import Graph, training_targets
from lazygnn.ops import Csr
from lazygnn.task import Task

PATH = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
FEATURES = np.arange(6.0).reshape(3, 2)
LABELS = np.array([0, 1, 0])
SILENCE = (
    "to silence this, give both directions equal weights, or call `logging.getLogger('lazygnn').setLevel('ERROR')`"
)
FIRST, SECOND = np.array([True, False, False]), np.array([False, True, False])


def dense_normalized(edges: np.ndarray, num_nodes: int, weight: np.ndarray | None = None) -> Tensor:
    """`D^-1/2 (A + I) D^-1/2` from dense matrices in float64, with the largest of several weights."""
    adj = np.zeros((num_nodes, num_nodes))
    weight = np.ones(edges.shape[1]) if weight is None else weight
    for (i, j), value in zip(edges.T, weight, strict=True):
        adj[i, j] = adj[j, i] = max(adj[i, j], adj[j, i], value)
    loops = set(edges[0][edges[0] == edges[1]].tolist())
    for node in set(range(num_nodes)) - loops:
        adj[node, node] = 1
    scale = np.diag(1 / np.sqrt(adj.sum(axis=1)))
    return torch.from_numpy(scale @ adj @ scale)


def both_ways(edges: np.ndarray) -> np.ndarray:
    return np.concatenate((edges, edges[::-1]), axis=1)


def random_edges(seed: int, num_nodes: int = 12, num_edges: int = 25) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, num_nodes, (2, num_edges))


def ones(num_nodes: int) -> np.ndarray:
    return np.ones((num_nodes, 1))


def dense_adj(graph: Graph) -> Tensor:
    return graph.adj.to_dense().double()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weighted", [False, True])
def test_normalization_is_the_dense_formula(seed: int, weighted: bool) -> None:
    edges = both_ways(random_edges(seed))
    half = np.random.default_rng(seed).uniform(0.5, 2, 25)
    weight = np.tile(half, 2) if weighted else None
    graph = Graph.from_edges(edges, ones(12), edge_weight=weight)
    expected = dense_normalized(edges, 12, weight)
    torch.testing.assert_close(dense_adj(graph), expected, rtol=0, atol=1e-7)


def test_degree_counts_weights_and_the_self_loop() -> None:
    graph = Graph.from_edges(PATH, FEATURES, edge_weight=np.array([2.0, 2.0, 0.5, 0.5]))
    assert graph.degree.tolist() == [3.0, 3.5, 1.5]


def test_self_loops_are_added_only_where_missing() -> None:
    edges = np.array([[0, 0, 1], [0, 1, 0]])
    graph = Graph.from_edges(edges, ones(3), edge_weight=np.array([4.0, 1.0, 1.0]))
    assert graph.degree.tolist() == [5.0, 2.0, 1.0]
    assert float(graph.adj.to_dense()[0, 0]) == pytest.approx(4 / 5)
    assert graph.num_edges == 1
    assert len(graph.adj.col) == 5


def test_a_directed_graph_is_made_symmetric_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    edges = random_edges(0)
    with caplog.at_level(logging.INFO, logger="lazygnn"):
        graph = Graph.from_edges(edges, ones(12))
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "made 19 of 22 edges undirected")
    ]
    torch.testing.assert_close(dense_adj(graph), dense_normalized(edges, 12), rtol=0, atol=1e-7)
    assert torch.equal(graph.adj.to_dense(), graph.adj.to_dense().T)


def test_the_larger_of_two_weights_is_used(caplog: pytest.LogCaptureFixture) -> None:
    edges = np.array([[0, 1, 0], [1, 0, 1]])
    with caplog.at_level(logging.WARNING):
        graph = Graph.from_edges(edges, ones(2), edge_weight=np.array([1.0, 3.0, 2.0]))
    assert [record.message for record in caplog.records] == [
        f"took the larger of two weights for 1 of the edges; {SILENCE}"
    ]
    assert graph.degree.tolist() == [4.0, 4.0]


def test_directed_edges_and_uneven_weights_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="lazygnn"):
        Graph.from_edges(np.array([[0, 1, 1, 2], [1, 0, 2, 2]]), ones(3), edge_weight=np.array([1.0, 3.0, 1.0, 1.0]))
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "made 1 of 4 edges undirected"),
        ("WARNING", f"took the larger of two weights for 1 of the edges; {SILENCE}"),
    ]


def test_the_warning_can_be_silenced_as_it_says(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="lazygnn"):
        Graph.from_edges(np.array([[0, 1], [1, 0]]), ones(2), edge_weight=np.array([1.0, 3.0]))
    assert not caplog.records


@pytest.mark.parametrize("weight", [None, np.array([2.0, 2.0, 0.5, 0.5])])
def test_a_symmetric_graph_gives_no_warning(caplog: pytest.LogCaptureFixture, weight: np.ndarray | None) -> None:
    with caplog.at_level(logging.WARNING):
        Graph.from_edges(PATH, FEATURES, edge_weight=weight)
    assert not caplog.records


def test_two_edges_are_two_rows() -> None:
    # the only shape for which both readings are possible
    graph = Graph.from_edges(np.array([[0, 1], [2, 2]]), ones(3))
    assert graph.adj.to_dense().nonzero().tolist() == [[0, 0], [0, 2], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]]


def test_duplicated_edges_count_once() -> None:
    once = Graph.from_edges(PATH, FEATURES)
    twice = Graph.from_edges(np.concatenate((PATH, PATH[:, ::-1]), axis=1), FEATURES)
    assert torch.equal(once.adj.to_dense(), twice.adj.to_dense())
    assert twice.num_edges == 2


def test_an_isolated_node_has_only_its_self_loop() -> None:
    graph = Graph.from_edges(np.array([[0, 1], [1, 0]]), ones(3))
    assert graph.adj.to_dense()[2].tolist() == [0, 0, 1]
    assert (graph.num_nodes, graph.num_edges) == (3, 1)


def test_a_graph_without_edges_is_the_identity() -> None:
    graph = Graph.from_edges(np.zeros((2, 0), dtype=np.int64), ones(3))
    assert torch.equal(graph.adj.to_dense(), torch.eye(3))
    assert graph.num_edges == 0


def test_a_node_of_degree_zero_has_a_zero_row() -> None:
    graph = Graph.from_edges(np.array([[0], [0]]), ones(2), edge_weight=np.array([0.0]))
    assert graph.adj.to_dense().tolist() == [[0, 0], [0, 1]]


def test_renumbering_the_nodes_renumbers_the_matrix() -> None:
    edges = both_ways(random_edges(1))
    permutation = np.random.default_rng(2).permutation(12)
    plain, moved = (Graph.from_edges(e, ones(12)).adj.to_dense() for e in (edges, permutation[edges]))
    assert torch.equal(moved[permutation][:, permutation], plain)


def test_the_order_of_edges_does_not_matter() -> None:
    edges = both_ways(random_edges(3))
    first = Graph.from_edges(edges, ones(12)).adj
    second = Graph.from_edges(edges[:, np.random.default_rng(0).permutation(50)], ones(12)).adj
    assert all(torch.equal(getattr(first, part), getattr(second, part)) for part in ("rowptr", "col", "value"))


def test_indices_are_int32_and_columns_sorted() -> None:
    adj = Graph.from_edges(random_edges(4), ones(12)).adj
    assert adj.rowptr.dtype == adj.col.dtype == torch.int32
    assert adj.value.dtype == torch.float32
    for row in range(12):
        columns = adj.col[int(adj.rowptr[row]) : int(adj.rowptr[row + 1])].tolist()
        assert columns == sorted(set(columns))


@pytest.mark.parametrize(
    ("edges", "ids"),
    [
        ([["a", "c", "c", "b"], ["c", "a", "b", "c"]], ["a", "c", "b"]),
        ([[b"a", b"c", b"c", b"b"], [b"c", b"a", b"b", b"c"]], [b"a", b"c", b"b"]),
        ([["a", "c", "c", "b"], ["c", "a", "b", "c"]], [b"a", b"c", b"b"]),
        ([[70, 9, 9, 10**12], [9, 70, 10**12, 9]], [70, 9, 10**12]),
        # edges of another type than the ids are indices
        ([[0, 1, 1, 2], [1, 0, 2, 1]], ["x", "y", "z"]),
    ],
)
def test_edges_may_hold_ids(edges: Any, ids: Any) -> None:
    graph = Graph.from_edges(np.array(edges), FEATURES, node_ids=np.array(ids))
    assert torch.equal(graph.adj.to_dense(), Graph.from_edges(PATH, FEATURES).adj.to_dense())
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == [name.decode() if isinstance(name, bytes) else name for name in ids]


def test_integer_edges_are_ids_if_the_ids_are_integers() -> None:
    graph = Graph.from_edges(np.array([[2, 1], [1, 2]]), ones(3), node_ids=np.array([2, 1, 0]))
    assert graph.adj.to_dense()[2].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("y", "kind", "num_outputs"),
    [
        (np.array([0, 2, -1]), "single-label", 3),
        (np.array([0, 1, 1], dtype=np.uint8), "single-label", 2),
        (np.array([True, False, True]), "single-label", 2),
        (np.array([[0, 1], [1, 1], [-1, -1]]), "multi-label", 2),
        (np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), "multi-label", 2),
        (np.array([0.5, 1.0, np.nan]), "regression", 1),
        (np.array([[0.5, 2.0], [1.0, 0.0], [np.nan, 1.0]]), "regression", 2),
    ],
)
def test_the_task_is_inferred_from_the_targets(y: np.ndarray, kind: str, num_outputs: int) -> None:
    task = Graph.from_edges(PATH, FEATURES, y).task
    assert (task.kind, task.num_outputs) == (kind, num_outputs)


def test_a_task_can_be_given() -> None:
    graph = Graph.from_edges(PATH, FEATURES, np.array([0.0, 1.0, 1.0]), task="multi-label")
    assert graph.task == Task("multi-label", 1)
    assert graph.y.shape == (3, 1)
    assert Graph.from_edges(PATH, FEATURES, LABELS, task="regression").y.dtype == torch.float32


@pytest.mark.parametrize("y", [[0.0, 1.0, 2.0], [1.0, np.nan, 0.0], [31.0, 42.0, -1.0]])
def test_whole_numbers_as_floats_need_a_task(y: list[float]) -> None:
    message = (
        rf"`y` holds whole numbers as floats, such as {y[0]}; give classes as integers, -1 for unknown, or pass `task"
    )
    with pytest.raises(GraphError, match=message):
        Graph.from_edges(PATH, FEATURES, np.array(y))
    graph = Graph.from_edges(PATH, FEATURES, np.array(y), task="regression")
    assert graph.task == Task("regression", 1)


@pytest.mark.parametrize("y", [[[0], [1], [2]], [[0, 1], [2, 1], [0, 0]]], ids=["a column", "a matrix"])
def test_a_matrix_of_whole_numbers_needs_a_task(y: list[list[int]]) -> None:
    shape = rf"\(3, {len(y[0])}\)"
    with pytest.raises(
        GraphError, match=rf"`y` has shape {shape} and holds 2; give one class per node as integers, \[3\]"
    ):
        Graph.from_edges(PATH, FEATURES, np.array(y))
    graph = Graph.from_edges(PATH, FEATURES, np.array(y), task="regression")
    assert graph.task == Task("regression", len(y[0]))


def test_there_may_be_more_classes_than_labels() -> None:
    assert Graph.from_edges(PATH, FEATURES, LABELS, num_classes=5).task.num_outputs == 5
    assert Graph.from_edges(PATH, FEATURES, num_classes=5).task.num_outputs == 5
    assert Graph.from_edges(PATH, FEATURES, np.eye(3), num_classes=3).task.num_outputs == 3


@pytest.mark.parametrize(
    "y",
    [np.array([0, -1, 1]), np.array([[0, 1], [-1, -1], [1, 1]]), np.array([0.5, np.nan, 2.0])],
    ids=["single-label", "multi-label", "regression"],
)
def test_an_unlabeled_node_must_not_be_in_a_mask(y: np.ndarray) -> None:
    graph = Graph.from_edges(PATH, FEATURES, y, train_mask=FIRST)
    assert graph.task.labeled(graph.y).tolist() == [True, False, True]
    with pytest.raises(GraphError, match=r"`val_mask` has node 1, which has no label; remove it from the mask"):
        Graph.from_edges(PATH, FEATURES, y, train_mask=FIRST, val_mask=SECOND)


@pytest.mark.parametrize("y", [np.array([[0, 1], [-1, 1], [1, 1]]), np.array([[0.5, 1.5], [np.nan, 0.5], [2.5, 1.0]])])
def test_a_partly_labeled_node_is_told_from_one_without_a_label(y: np.ndarray) -> None:
    with pytest.raises(
        GraphError, match=r"`val_mask` has node 1, which has no value in some columns of `y`; remove it"
    ):
        Graph.from_edges(PATH, FEATURES, y, train_mask=FIRST, val_mask=SECOND)


def test_an_empty_split_is_left_out() -> None:
    graph = Graph.from_edges(PATH, FEATURES, LABELS, train_mask=FIRST, test_mask=np.zeros(3, dtype=bool))
    assert list(graph.masks) == ["train"]


BIG = np.array([[0.0, 1e300], [0.0, 0.0], [0.0, 0.0]])
CSR = Csr(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1]), torch.ones(2), 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # edges
        ({"edges": np.array([[0], [3]])}, r"`edges` holds 3, but `x` has 3 rows; indices go from 0 to 2$"),
        ({"edges": np.array([[0], [-1]])}, r"`edges` holds -1, but `x` has 3 rows; indices go from 0 to 2"),
        ({"edges": PATH.astype(float)}, r"`edges` has type float64; convert node indices to integers"),
        ({"edges": torch.zeros(2, 1)}, r"`edges` has type float32; convert node indices to integers"),
        ({"edges": np.array([["a"], ["b"]])}, r"`edges` has type <U1; convert node indices to integers"),
        ({"edges": PATH.astype(bool)}, r"`edges` has type bool; convert node indices to integers"),
        ({"edges": PATH.T}, r"`edges` has shape \(4, 2\); give two rows, .*: \[2, num_edges\]; transpose it$"),
        ({"edges": np.zeros((1, 2))}, r"`edges` has shape \(1, 2\); .*; transpose it$"),
        ({"edges": np.zeros((3, 3))}, r"`edges` has shape \(3, 3\); .* \[2, num_edges\]$"),
        (
            {"edges": PATH + 1},
            r"`edges` holds 3, but `x` has 3 rows; indices go from 0 to 2; ids start at 1\? subtract 1$",
        ),
        ({"edges": PATH + 2}, r"`edges` holds 4, but `x` has 3 rows; indices go from 0 to 2$"),
        ({"edges": np.array([0, 1])}, r"`edges` has shape \(2,\); give two rows"),
        ({"edges": [[0, 1], [1]]}, r"`edges` has rows of different length; give rows of the same length"),
        # features
        ({"x": np.array([[np.nan], [0], [np.nan]])}, r"`x` holds nan in column 0 \(2 such values\); replace or remove"),
        ({"x": torch.tensor([[1.0], [torch.inf], [0]])}, r"`x` holds inf in column 0 \(1 such values\); replace or"),
        ({"x": BIG}, r"`x` holds 1e\+300, more than float32 can hold"),
        ({"x": np.diag([0, np.nan, np.inf])}, r"`x` holds nan in columns 1, 2 \(2 such values\)"),
        ({"x": np.full((3, 6), np.nan)}, r"`x` holds nan in columns 0, 1, 2, 3, 4, ... \(18 such values\)"),
        ({"x": np.ones(3)}, r"`x` has shape \(3,\); give one row of features per node, \[num_nodes, num_features\]"),
        ({"x": np.ones((3, 0))}, r"`x` has shape \(3, 0\); give one row of features per node"),
        ({"x": np.array([["a"]] * 3)}, r"`x` has type <U1; give numbers"),
        ({"x": None}, r"`x` is None; give features, \[N, D\]; if there are none, `lazygnn import --structural` makes"),
        ({"x": [[1, 2], [3]]}, r"`x` has rows of different length"),
        (
            {"x": torch.ones(3, 2, dtype=torch.complex64)},
            r"`x` has layout torch.strided and type torch.complex64; give",
        ),
        (
            {"x": torch.ones(3, 2, dtype=torch.complex64).to_sparse_coo()},
            r"`x` has layout torch.sparse_coo and type torch.complex64; give dense",
        ),
        ({"x": CSR.with_value(torch.tensor([1.0, torch.nan]))}, r"`x` holds nan in column 1 \(1 such values\)"),
        ({"x": Csr(CSR.rowptr, torch.tensor([0, 2]), CSR.value, 2)}, r"sparse `x` has column 2, but 2 columns; fix"),
        ({"x": Csr(CSR.rowptr, torch.tensor([0, -1]), CSR.value, 2)}, r"sparse `x` has column -1, but 2 columns; fix"),
        ({"x": Csr(torch.tensor([0, 2, 1, 2]), CSR.col, CSR.value, 2)}, r"the row pointers of sparse `x` do not match"),
        ({"x": Csr(torch.tensor([1, 1, 2, 2]), CSR.col, CSR.value, 2)}, r"the row pointers .* must rise from 0"),
        ({"x": Csr(torch.tensor([0, 1, 2, 3]), CSR.col, CSR.value, 2)}, r"the row pointers .* must rise from 0"),
        (
            {"x": Csr(CSR.rowptr, CSR.col, torch.ones(3), 2)},
            r"the row pointers .* must rise from 0 to the number of entries",
        ),
        ({"x": Csr(CSR.rowptr, torch.zeros(2), CSR.value, 0)}, r"sparse `x` has column 0, but 0 columns"),
        # weights
        ({"edge_weight": np.array([1, np.nan, 1, 1])}, r"`edge_weight` holds nan \(1 such values\); replace or remove"),
        ({"edge_weight": np.array([1, 1, 1, -2.5])}, r"`edge_weight` holds -2.5; weights must not be negative; shift"),
        ({"edge_weight": np.ones(3)}, r"`edge_weight` has shape \(3,\); give one weight per edge, \[4\]"),
        ({"edge_weight": np.array(["a"] * 4)}, r"`edge_weight` has type <U1; give numbers"),
        # targets
        ({"y": LABELS, "num_classes": 1}, r"`y` holds label 1; labels go from 0 to 0, and -1 means unknown"),
        ({"y": np.array([0, -2, 1])}, r"`y` holds label -2; labels go from 0 to 1, and -1 means unknown"),
        ({"y": np.array([0, 1])}, r"`y` has shape \(2,\); give one label per node, \[3\] or \[3, C\]"),
        ({"y": np.zeros((3, 1, 1))}, r"`y` has shape \(3, 1, 1\); give one label per node"),
        ({"y": np.zeros((3, 0))}, r"`y` has shape \(3, 0\); give one label per node"),
        ({"y": np.array(["a", "b", "c"])}, r"`y` has type <U1; give numbers"),
        ({"y": np.array([0.0, np.inf, 1.0])}, r"`y` holds an infinite value; use NaN for a node without a target"),
        ({"y": np.eye(3) * 2, "task": "multi-label"}, r"`y` holds 2.0; a multi-label target is 0, 1, or a row of -1"),
        (
            {"y": np.ones(3), "task": "single-label"},
            r"`y` has shape \(3,\) and type torch.float64; single labels are int",
        ),
        ({"y": np.ones((3, 2), int), "task": "single-label"}, r"`y` has shape \(3, 2\) and type torch.int64; single"),
        (
            {"y": LABELS, "task": "ranking"},
            r"`task` is `ranking`; choose one of: auto, single-label, multi-label, regr",
        ),
        ({"y": LABELS, "num_classes": 0}, r"`num_classes` is 0; give at least 1"),
        (
            {"y": np.eye(3), "num_classes": 2},
            r"`num_classes` is 2, but `y` has 3 columns, one for each output of a multi-label task; omit `num_classes`",
        ),
        ({"y": np.array([0.5, 1.5, 2]), "num_classes": 2}, "`num_classes` is 2, but `y` has 1 columns, one for each"),
        ({"y": LABELS, "class_names": ("a",)}, r"`class_names` has 1 names for 2 classes; give one name per class"),
        ({"y": LABELS, "class_names": "ab"}, r"`class_names` is 'ab', of type str; give one name per class"),
        ({"y": LABELS, "class_names": ("a", 2)}, r"`class_names\[1\]` is 2, of type int; give a text"),
        ({"y": LABELS, "class_names": ("a", "a")}, r"`class_names` holds 'a' more than once; give every class a diff"),
        # masks
        (
            {"y": LABELS, "train_mask": LABELS},
            r"`train_mask` has shape \(3,\) and type int64; give a bool per node, \[3\]; `astype\(bool\)` converts",
        ),
        (
            {"y": LABELS, "val_mask": FIRST[:2]},
            r"`val_mask` has shape \(2,\) and type bool; give a bool per node, \[3\]$",
        ),
        ({"y": LABELS, "test_mask": "all"}, r"`test_mask` has type <U3; give numbers"),
        (
            {"y": LABELS, "train_mask": FIRST, "test_mask": FIRST},
            r"`test_mask` overlaps an earlier mask at node 0; a no",
        ),
        ({"y": LABELS, "train_mask": ~(FIRST | ~FIRST)}, r"`train_mask` is empty; mark at least one labeled node"),
        (
            {"train_mask": FIRST},
            r"`train_mask` has node 0, which has no label; remove it from the mask or give it",
        ),
        # ids
        ({"node_ids": ["a", "b", "a"]}, r"`node_ids` holds 'a' more than once; give every node a different id"),
        ({"node_ids": [7, 8, 7]}, r"`node_ids` holds 7 more than once"),
        ({"node_ids": ["a", "b"]}, r"`node_ids` has shape \(2,\) and type <U1; give 3 integers or strings, one per no"),
        ({"node_ids": np.array([0.5, 1, 2])}, r"`node_ids` has shape \(3,\) and type float64; give 3 integers or str"),
        ({"node_ids": [[1], 2, 3]}, r"`node_ids` has rows of different length"),
        ({"node_ids": [10, 11, 12]}, r"`edges` names node 0, which is not in `node_ids`; add it or drop the edge"),
        (
            {"edges": np.array([["a"], ["z"]]), "node_ids": ["a", "b", "c"]},
            r"`edges` names node 'z', which is not",
        ),
    ],
)
def test_impossible_values_are_refused(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"edges": PATH, "x": FEATURES} | changes
    with pytest.raises(GraphError, match=message):
        Graph.from_edges(**arguments)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint64", "int8", "float16", "float64", ">f4", "longdouble"])
def test_features_of_any_number_type_become_float32(dtype: str) -> None:
    x = np.array([[0, 1], [1, 0], [1, 1]], dtype=dtype)
    x.flags.writeable = False
    graph = Graph.from_edges(PATH, x)
    assert isinstance(graph.x, Tensor)
    assert graph.x.dtype == torch.float32
    assert graph.x.tolist() == [[0, 1], [1, 0], [1, 1]]


def test_labels_and_edges_of_another_byte_order_are_read() -> None:
    graph = Graph.from_edges(PATH.astype(">i2"), FEATURES, LABELS.astype(">u8"), edge_weight=np.ones(4, dtype=">f8"))
    assert graph.y.tolist() == [0, 1, 0]
    assert torch.equal(graph.adj.to_dense(), Graph.from_edges(PATH, FEATURES).adj.to_dense())


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_sparse_tensor_stays_sparse() -> None:
    features = torch.from_numpy(FEATURES)
    # entries of the same place add up
    at, values = torch.tensor([[2, 0, 2], [1, 0, 1]]), torch.tensor([1.0, 5.0, 2.0])
    twice = torch.sparse_coo_tensor(at, values, (3, 2), check_invariants=True)
    for x in (features.to_sparse_csr(), features.to_sparse(), twice):
        graph = Graph.from_edges(PATH, x)
        assert isinstance(graph.x, Csr)
        assert graph.x.to_dense().tolist() == x.to_dense().tolist()
        assert graph.in_channels == 2


def test_features_are_detached() -> None:
    graph = Graph.from_edges(PATH, torch.ones(3, 2, requires_grad=True))
    assert isinstance(graph.x, Tensor)
    assert not graph.x.requires_grad


def test_a_graph_moves_as_a_whole() -> None:
    graph = Graph.from_edges(PATH, FEATURES, LABELS, train_mask=FIRST)
    double = graph.to(torch.float64)
    assert isinstance(double.x, Tensor)
    assert double.x.dtype == double.adj.value.dtype == torch.float64
    assert torch.equal(double.y, graph.y)
    meta = graph.to("meta")
    assert isinstance(meta.x, Tensor)
    parts = (meta.x, meta.y, meta.adj.value, meta.degree, meta.masks["train"])
    assert {part.device.type for part in parts} == {meta.device.type} == {"meta"}


def test_training_nodes_are_counted() -> None:
    graph = Graph.from_edges(PATH, FEATURES, LABELS, train_mask=FIRST | SECOND)
    assert graph.num_train == 2
    with pytest.raises(GraphError, match=r"graph `mine` has no training nodes; give it labels `y` and a `train_mask`"):
        _ = Graph.from_edges(PATH, FEATURES, name="mine").num_train


def pyg_data(**fields: Any) -> Any:
    data = pytest.importorskip("torch_geometric.data")
    base = {"x": torch.from_numpy(FEATURES).float(), "edge_index": torch.from_numpy(PATH)}
    return data.Data(**base | fields)


def test_targets_of_training_nodes_have_a_column_for_each_output(path_graph: Graph) -> None:
    assert training_targets(path_graph).tolist() == [[1, 0], [0, 1]]
    tags = torch.tensor([[1.0, 0, 1], [-1, -1, -1], [0, 1, 1], [-1, -1, -1]])
    several = replace(path_graph, y=tags, task=Task("multi-label", 3))
    assert torch.equal(training_targets(several), tags[[0, 2]])
    numbers = replace(path_graph, y=torch.tensor([[0.5], [torch.nan], [-2.0], [torch.nan]]), task=Task("regression", 1))
    assert training_targets(numbers).tolist() == [[0.5], [-2.0]]


@pytest.mark.parametrize(
    ("y", "task", "shape"),
    [
        (torch.tensor([0, 0, 2, 1]), Task("single-label", 2), "(2,)"),
        (torch.tensor([0, 0, -1, 1]), Task("single-label", 2), "(2,)"),
        (torch.tensor([0.0, 0.0, 1.0, 1.0]), Task("single-label", 2), "(2,)"),
        (torch.zeros(4, 2, dtype=torch.int64), Task("single-label", 2), "(2, 2)"),
        (torch.tensor([0, 0, 1, 1]), Task("multi-label", 2), "(2,)"),
        (torch.zeros(4, 3), Task("multi-label", 2), "(2, 3)"),
        (-torch.ones(4, 2), Task("multi-label", 2), "(2, 2)"),
        (torch.full((4, 1), torch.nan), Task("regression", 1), "(2, 1)"),
    ],
)
def test_targets_of_another_task_are_refused(path_graph: Graph, y: Tensor, task: Task, shape: str) -> None:
    with pytest.raises(GraphError) as error:
        training_targets(replace(path_graph, y=y, task=task))
    assert str(error.value) == (
        f"the training labels of graph `path`, of shape {shape}, do not fit a {task.kind} task "
        f"with {task.num_outputs} outputs; give it labels of that task"
    )


def test_a_graph_without_training_nodes_has_no_targets(path_graph: Graph) -> None:
    with pytest.raises(GraphError, match="`path` has no training nodes; give it labels `y` and a `train_mask`"):
        training_targets(replace(path_graph, masks={}))


def test_a_graph_from_pyg() -> None:
    data = pyg_data(
        y=torch.from_numpy(LABELS),
        train_mask=torch.from_numpy(FIRST),
        val_mask=torch.from_numpy(SECOND),
        edge_weight=torch.tensor([2.0, 2.0, 0.5, 0.5]),
    )
    graph = Graph.from_data(data, name="pyg")
    expected = Graph.from_edges(PATH, FEATURES, LABELS, edge_weight=np.array([2.0, 2.0, 0.5, 0.5]))
    assert torch.equal(graph.adj.to_dense(), expected.adj.to_dense())
    assert graph.y.tolist() == LABELS.tolist()
    assert {split: mask.tolist() for split, mask in graph.masks.items()} == {
        "train": FIRST.tolist(),
        "val": SECOND.tolist(),
    }
    assert graph.name == "pyg"


@pytest.mark.parametrize(
    ("attributes", "more", "remedy"),
    [
        ((4, 3), {}, "set `data.edge_weight = data.edge_attr[:, 0]` if that is a weight, or remove `edge_attr`"),
        ((4,), {}, "set `data.edge_weight = data.edge_attr` if that is a weight, or remove `edge_attr`"),
        ((4, 3), {"edge_weight": torch.ones(4)}, "weights are taken from `edge_weight`"),
    ],
)
def test_dropped_edge_attributes_are_a_warning(
    attributes: tuple[int, ...], more: dict[str, Tensor], remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    Graph.from_data(pyg_data(edge_attr=torch.ones(attributes), **more))
    (record,) = caplog.records
    assert record.message == f"edge attributes are dropped: `edge_attr` of shape {attributes} is not used; {remedy}"
    caplog.clear()
    Graph.from_data(pyg_data(**more))
    assert not caplog.records


def test_gaps_in_the_labels_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    edges, x, y = np.zeros((2, 0), np.int64), np.ones((10, 1)), np.array([9, 9, 9, 9, 9, 9, 1, 0, -1, -1])
    Graph.from_edges(edges, x, y)
    (record,) = caplog.records
    assert record.message == (
        "7 of the 10 classes from 0 to 9 have no node: 2, 3, 4, 5, 6, ...; number the classes without gaps, or give "
        "`num_classes=10` if all of them exist"
    )
    caplog.clear()
    Graph.from_edges(edges, x, np.arange(10) % 4 // 2 * 2)
    assert caplog.records[0].message.startswith("1 of the 3 classes from 0 to 2 has no node: 1; number the classes")
    caplog.clear()
    Graph.from_edges(edges, x, y, num_classes=10)
    Graph.from_edges(edges, x, np.arange(10) % 3)
    Graph.from_edges(edges, x, np.full(10, -1))
    Graph.from_edges(edges, x)
    Graph.from_edges(edges, x, np.eye(10, dtype=np.int64)[:, 2:])
    assert not caplog.records


def test_a_column_of_labels_from_pyg_is_flattened() -> None:
    graph = Graph.from_data(pyg_data(y=torch.from_numpy(LABELS)[:, None]))
    assert graph.task.kind == "single-label"
    assert Graph.from_data(pyg_data()).y.tolist() == [-1, -1, -1]


def test_whole_numbers_from_pyg_need_a_task() -> None:
    data = pyg_data(y=torch.tensor([3.0, 1.0, 2.0]))
    with pytest.raises(GraphError, match=r"`y` holds whole numbers as floats, such as 3\.0"):
        Graph.from_data(data)
    assert Graph.from_data(data, task="regression").task == Task("regression", 1)


def test_other_arguments_are_passed_with_pyg_data() -> None:
    graph = Graph.from_data(pyg_data(), num_classes=4, class_names=("a", "b", "c", "d"), node_ids=["x", "y", "z"])
    assert graph.task.num_outputs == 4
    assert graph.class_names == ("a", "b", "c", "d")
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("y", "warned"),
    [
        ([[1, 0], [0, 1], [0, 1]], True),
        ([[1, 0], [-1, -1], [0, 1]], True),
        ([[1, 1], [0, 1], [0, 1]], False),
        ([[1, 0], [0, 0], [0, 1]], False),
        ([[1], [1], [1]], False),
    ],
)
def test_codes_of_classes_are_warned_of(y: list[list[int]], warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    graph = Graph.from_edges(PATH, FEATURES, np.array(y))
    assert graph.task.kind == "multi-label"
    assert ["`y.argmax(1)`" in message for message in caplog.messages] == [True] * warned


def test_an_object_other_than_pyg_data_is_refused() -> None:
    with pytest.raises(GraphError, match=r"`data` is 'cora', of type str; give a PyG `Data` object, or arrays to"):
        Graph.from_data("cora")


def test_repr_is_one_line() -> None:
    graph = Graph.from_edges(PATH, FEATURES, LABELS, train_mask=FIRST, name="mine")
    assert repr(graph) == (
        "Graph(name='mine', num_nodes=3, num_edges=2, in_channels=2, task='single-label', num_outputs=2, "
        "splits=['train'], device='cpu')"
    )
    assert "device='meta'" in repr(graph.to("meta"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"x": None}, r"`data.x` is missing; `Graph.from_data` needs `x` and `edge_index`; if there are none, `lazyg"),
        ({"edge_index": None}, r"`data.edge_index` is missing; `Graph.from_data` needs"),
        ({"edge_index": None, "adj_t": 1}, r"is missing; .*; `data.adj_t` is not read: leave out `ToSparseTensor`"),
        ({"edge_index": torch.from_numpy(PATH.T)}, r"`edge_index` has shape \(4, 2\); .*; transpose it$"),
        (
            {"y": torch.zeros(3).long(), "train_mask": torch.ones(3, 10).bool()},
            r"`data.train_mask` has shape \(3, 10\); choose one split, such as `mask\[:, 0\]`",
        ),
    ],
)
def test_missing_fields_of_pyg_data_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_data(pyg_data(**fields))


def test_labels_that_are_not_numbered_from_zero_are_refused() -> None:
    with pytest.raises(GraphError, match=r"`y` holds label 6000000 for 2 nodes; number the classes from 0"):
        Graph.from_edges(np.array([[0], [1]]), np.ones((2, 1)), np.array([0, 6_000_000]))


def test_data_may_hold_arrays_of_numpy(block_arrays: dict[str, Any]) -> None:
    class Data:
        @staticmethod
        def to_dict() -> dict[str, Any]:
            return block_arrays | {"y": block_arrays["y"][:, None]}

    graph = Graph.from_data(Data())
    assert graph.y.tolist() == block_arrays["y"].tolist()
    assert list(graph.masks) == ["train", "val", "test"]


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(4, 2, device="meta"), "`x` is on the device `meta`, which holds no numbers; give a tensor with"),
        (torch.ones(4, 2, 2).to_sparse(), "`x` has layout torch.sparse_coo and type torch.float32; give dense real"),
        (np.full((4, 2), 2**64 - 1, dtype=np.uint64), "`x` holds 18446744073709551615, more than int64 can hold"),
        (torch.full((4, 2), 2**64 - 1, dtype=torch.uint64), "`x` holds 18446744073709551615, more than int64 can"),
    ],
    ids=["meta", "sparse", "array", "tensor"],
)
def test_features_that_cannot_be_computed_with_are_refused(x: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_edges(np.array([[0], [1]]), x)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.float8_e4m3fn, torch.bfloat16])
def test_narrow_and_unsigned_tensors_are_taken(dtype: torch.dtype) -> None:
    graph = Graph.from_edges(np.array([[0], [1]]), torch.ones(2, 3).to(dtype))
    assert isinstance(graph.x, Tensor)
    assert torch.equal(graph.x, torch.ones(2, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": np.ones(3)}, "`num_classes` is of type ndarray and shape"),
        ({"num_classes": True}, "`num_classes` is True, of type bool; give a whole number"),
        ({"num_classes": 10**12}, "`num_classes` is 1000000000000; give at least 1 and less than 2"),
        ({"task": ["auto"]}, r"`task` is `\['auto'\]`; choose one of: auto"),
        ({"name": 3}, "`name` is 3, of type int; give a text"),
    ],
    ids=["array", "bool", "huge", "list", "number"],
)
def test_options_of_another_type_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        Graph.from_edges(np.array([[0], [1]]), np.ones((2, 1)), np.array([0, 1]), **options)


def test_a_split_is_counted(path_graph: Graph) -> None:
    assert [path_graph.count(split) for split in ("train", "val", "test", "other")] == [2, 1, 1, 0]
    assert path_graph.training_labels().tolist() == [0, 1]
