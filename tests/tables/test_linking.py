from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lazygnn.errors import GraphError
from lazygnn.tables.linking import Edges, NodeIndex, index_nodes, read_edges
from lazygnn.tables.reading import FrameSource
from lazygnn.tables.roles import EdgeRoles
from tests.tables.helpers import frame, open_text


def index_of(ids: Any) -> NodeIndex:
    source, table = frame(id=ids)
    return index_nodes(source, table, "id")


def edges_of(ids: Any, drop_unknown: bool = False, **columns: Any) -> Edges:
    roles = EdgeRoles("a", "b", "weight" if "weight" in columns else None, (), ())
    return read_edges(FrameSource(columns, "edges"), roles, index_of(ids), drop_unknown=drop_unknown)


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (["x", " y ", "NA"], ["x", "y", "NA"]),
        (["1", "20", "-3"], [1, 20, -3]),
        ([1, 20, 10**17], [1, 20, 10**17]),
        ([1.0, 20.0], [1, 20]),
        (["01", "1"], ["01", "1"]),
        (["1.5", "2"], ["1.5", "2"]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        (["Zoë", "日本", "=1+1"], ["Zoë", "日本", "=1+1"]),
        ([str(10**18), "1"], [str(10**18), "1"]),
    ],
)
def test_ids_are_text_or_integers(ids: Any, found: list[Any]) -> None:
    assert index_of(ids).node_ids().tolist() == found


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["x", "y", "x", "x"], r"row 2, column `id`: the id 'x' is on row 0 already; 2 rows repeat an id"),
        (["x", " x"], r"row 1, column `id`: the id 'x' is on row 0 already"),
        (["x", ""], r"row 1, column `id`: the id is missing; give every node one"),
        (["x", None], r"row 1, column `id`: the id is missing"),
        ([1.0, float("nan")], r"row 1, column `id`: the id is missing"),
        (["x" * 257], r"row 0, column `id`: the id is too long, at most 256 characters"),
        (["x\0"], r"row 0, column `id`: the id holds a null character; remove it"),
        ([0.5, 1.0], r"column `id` has the type double; give ids as text or integers"),
        ([True, False], r"column `id` has the type bool"),
    ],
)
def test_wrong_ids_are_refused(ids: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        index_of(ids)


def test_edges_become_positions() -> None:
    edges = edges_of(["x", "y", "z"], a=["x", "z", "y"], b=["y", "z ", "x"])
    assert edges.index.tolist() == [[0, 2, 1], [1, 2, 0]]
    assert (edges.weight, edges.num_rows, edges.num_loops, edges.num_unknown) == (None, 3, 1, 0)


@pytest.mark.parametrize(("ids", "ends"), [(["1", "2"], [1, 2]), ([1, 2], ["1", "2"]), ([1, 2], [1.0, 2.0])])
def test_numbers_and_their_text_are_the_same_id(ids: Any, ends: Any) -> None:
    assert edges_of(ids, a=ends, b=ends[::-1]).index.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("ids", "ends", "message"),
    [
        (["x", "y"], ["x", "q"], r"`edges`, row 1, column `b`: 'q' is not an id of `nodes`; correct it, or drop such"),
        ([1, 2], ["1", "02"], r"`edges`, row 1, column `b`: '02' is not an id of `nodes`, which has '2'; correct it"),
        (["1", "2"], ["1.0", "2"], r"row 0, column `b`: '1.0' is not an id of `nodes`, which has '1'"),
        (["Ann", "Bob"], ["Ann", "bob"], r"'bob' is not an id of `nodes`, which has 'Bob'"),
        (["x", "y"], ["x", ""], r"`edges`, row 1, column `b`: the id is missing; .* with `--drop-unknown`"),
        (["x", "y"], ["x", "q" * 99], r"'q{40}\.\.\.' is not an id"),
    ],
)
def test_an_unknown_end_is_refused_with_what_is_alike(ids: Any, ends: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        edges_of(ids, a=[str(ids[0]), str(ids[1])], b=ends)


def test_edges_of_unknown_nodes_can_be_dropped() -> None:
    edges = edges_of(["x", "y"], True, a=["x", "q", None, "y"], b=["y", "q", "x", "x"], weight=["1", "2", "3", "4"])
    assert edges.index.tolist() == [[0, 1], [1, 0]]
    assert edges.weight is not None
    assert edges.weight.tolist() == [1, 4]
    assert (edges.num_rows, edges.num_loops, edges.num_unknown) == (4, 0, 2)


@pytest.mark.parametrize("weight", [[1, 2], ["1", " 2.0 "], np.array([1, 2], np.float32)])
def test_weights_are_numbers(weight: Any) -> None:
    edges = edges_of(["x", "y"], a=["x", "y"], b=["y", "x"], weight=weight)
    assert edges.weight is not None
    assert edges.weight.tolist() == [1, 2]


@pytest.mark.parametrize("wrong", ["", "heavy", "-1", "1e99", "nan", "inf", -0.5, None])
def test_a_wrong_weight_is_refused(wrong: Any) -> None:
    weight = ["1", wrong] if isinstance(wrong, str) else [1.0, wrong]
    with pytest.raises(GraphError, match=r"`edges`, row 1, column `weight`: .* is not a weight; give a number"):
        edges_of(["x", "y"], a=["x", "y"], b=["y", "x"], weight=weight)
    with pytest.raises(GraphError, match=r"`edges`, column `weight` has the type bool; give weights as numbers"):
        edges_of(["x", "y"], a=["x"], b=["y"], weight=[True])


def test_there_may_be_no_edges() -> None:
    edges = edges_of(["x"], a=[], b=[], weight=[])
    assert edges.index.shape == (2, 0)
    assert edges.weight is not None
    assert len(edges.weight) == 0


def test_a_file_of_edges_is_not_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazygnn.tables.reading.BLOCK_BYTES", 2**15)
    source = open_text(tmp_path, "a,b\n" + "node-x,node-y\n" * 150_000, "edges.csv")
    index = index_of(["node-x", "node-y"])
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        edges = read_edges(source, EdgeRoles("a", "b", None, (), ()), index)
    finally:
        pa.set_memory_pool(usual)
    assert edges.num_rows == 150_000
    assert 0 < pool.max_memory() < source.size / 4
