import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.tables.building import import_tables
from lazygnn.tables.options import TableOptions, read_table_options
from tests.tables.helpers import EDGES, NODES, imported, write


def test_two_tables_are_a_graph(tmp_path: Path) -> None:
    graph = imported(tmp_path, ratio=(50, 25, 25)).graph
    assert isinstance(graph.x, Tensor)
    scale = 50**0.5
    expected = [
        [-10 / scale, 0, 1, 0, 0],
        [0, 1, 0, 1, 0],
        [10 / scale, 0, 1, 0, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 1, 0],
    ]
    np.testing.assert_allclose(graph.x, expected, rtol=1e-6)
    assert graph.y.tolist() == [1, 0, 1, 0, -1]
    assert graph.class_names == ("blue", "red")
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["a", "b", "c", "d", "e"]
    plain = Graph.from_edges(np.array([[0, 1, 1, 2, 2], [1, 0, 2, 1, 2]]), np.ones((5, 1)))
    assert torch.equal(graph.adj.to_dense(), plain.adj.to_dense())
    taken = sum(mask.int() for mask in graph.masks.values())
    assert isinstance(taken, Tensor)
    assert taken.tolist() == [1, 1, 1, 1, 0]
    assert graph.schema is not None
    assert graph.schema.feature_names() == ["age", "age is missing", "plan=basic", "plan=pro", "plan is missing"]


def test_integer_ids_are_not_taken_for_positions(tmp_path: Path) -> None:
    graph = imported(tmp_path, "id,x\n2,5\n1,6\n0,7\n", "source,target\n2,1\n").graph
    assert graph.adj.to_dense()[2].tolist() == [0, 0, 1]
    assert graph.node_ids is not None
    assert graph.node_ids.dtype == np.int64


def test_weights_and_ratios_are_used(tmp_path: Path) -> None:
    edges = EDGES.replace("target\n", "target,weight\n").replace("a,b\n", "a,b,3\n").replace(",a\n", ",a,1\n")
    edges = edges.replace("b,c\n", "b,c,2\n").replace("c,c\n", "c,c,4\n")
    graph = imported(tmp_path, edges=edges, ratio=(1, 0, 0)).graph
    assert graph.degree.tolist() == [4, 6, 6, 1, 1]
    assert list(graph.masks) == ["train"]


def test_structural_features_follow_the_columns_or_stand_alone(tmp_path: Path) -> None:
    both = imported(tmp_path, structural=True).graph
    alone = imported(tmp_path, "id,label\na,1\nb,2\nc,1\nd,2\ne,2\n", structural=True).graph
    assert (both.in_channels, alone.in_channels) == (5 + 33, 33)
    assert isinstance(both.x, Tensor)
    assert isinstance(alone.x, Tensor)
    assert torch.equal(both.x[:, 5:], alone.x)
    with pytest.raises(ConfigError, match=r"has no columns of features; add features of the graph itself with"):
        imported(tmp_path, "id,label\na,1\nb,2\nc,1\n")


def test_the_split_may_come_from_columns(tmp_path: Path) -> None:
    nodes = "id,x,y,part,day\na,1,0,train,2026-01-03\nb,2,1,test,2026-01-01\nc,3,1,val,2026-01-02\nd,4,,train,\n"
    edges = "source,target\na,b\n"
    by_column = imported(tmp_path, nodes, edges, split_column="part", ignore="day").graph
    assert [mask.nonzero()[:, 0].tolist() for mask in by_column.masks.values()] == [[0], [2], [1]]
    by_time = imported(tmp_path, nodes, edges, split_time="day", ignore="part").graph
    assert [by_time.masks[split].nonzero()[:, 0].tolist() for split in ("train", "test")] == [[1, 2], [0]]
    assert by_time.in_channels == 1
    with pytest.raises(ConfigError, match=r"`--split-column` and `--split-time` exclude each other; remove one"):
        imported(tmp_path, nodes, edges, split_time="day", split_column="part")
    with pytest.raises(ConfigError, match=r"`--ratio` has no effect with `--split-column`; omit it"):
        imported(tmp_path, nodes, edges, split_column="part", ratio=(50, 25, 25), ignore="day")
    with pytest.raises(ConfigError, match=r"`--seed` has no effect with `--split-time`; omit it"):
        imported(tmp_path, nodes, edges, split_time="day", seed=1, ignore="part")
    with pytest.raises(ConfigError, match=r"column `part` of `.*` marks no labeled node as train; mark some"):
        imported(tmp_path, nodes.replace("0,train", "0,test"), edges, split_column="part", ignore="day")


@pytest.mark.parametrize(
    ("labels", "task", "shape"),
    [
        (("r", "g", "b"), "single-label", (3,)),
        (("r;g", "g", ""), "multi-label", (3, 2)),
        ((0.5, 1, 2), "regression", (3, 1)),
    ],
)
def test_the_task_is_that_of_the_labels(labels: Any, task: str, shape: tuple[int, ...]) -> None:
    nodes = {"id": [1, 2, 3], "x": [1, 2, 3], "label": list(labels)}
    graph = Graph.from_tables(nodes, {"source": [1], "target": [2]}, name="mine")
    assert (graph.task.kind, tuple(graph.y.shape), graph.name) == (task, shape, "mine")


def test_another_table_is_encoded_alike(tmp_path: Path) -> None:
    first = imported(tmp_path, NODES.replace("label", "segment"), label="segment").graph
    nodes = write(tmp_path, "plan,id,age,segment\npro,z,60,red\ngold,y,40,blue\nbasic,x,,\n", "later.csv")
    edges = write(tmp_path, "source,target\nz,y\n", "later_edges.csv")
    second = import_tables(nodes, edges, TableOptions(ratio=(1, 0, 0)), earlier=first).graph
    scale = 50**0.5
    assert isinstance(second.x, Tensor)
    expected = [[20 / scale, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0]]
    np.testing.assert_allclose(second.x, expected, rtol=1e-6)
    assert second.y.tolist() == [1, 0, -1]
    assert second.task == first.task
    with pytest.raises(ConfigError, match=r"`--numeric` has no effect with `--like`, which knows the columns; omit it"):
        import_tables(nodes, edges, read_table_options({"numeric": "age"}), earlier=first)
    with pytest.raises(ConfigError, match=r"`--features` names `plan`, but .* has the columns: id, age"):
        import_tables(write(tmp_path, "id,age\nz,3\n"), edges, TableOptions(), earlier=first)


def test_a_later_graph_has_weights_if_the_first_has_them(tmp_path: Path) -> None:
    nodes, plain = write(tmp_path, NODES), write(tmp_path, EDGES, "edges.csv")
    weighted = write(tmp_path, "source,target,weight,w\na,b,2,5\nb,c,3,5\n", "weighted.csv")
    without, with_weights = (import_tables(nodes, edges, TableOptions()).graph for edges in (plain, weighted))
    later = import_tables(nodes, weighted, TableOptions(), earlier=without)
    assert later.graph.degree.tolist() == [2, 3, 2, 1, 1]
    assert "columns that are not used: weight, w" in later.notes
    assert not any("guessed" in note for note in later.notes)
    again = import_tables(nodes, weighted, TableOptions(weight="w"), earlier=with_weights)
    assert again.graph.degree.tolist() == [6, 11, 6, 1, 1]
    with pytest.raises(ConfigError, match=r"`--weight` is `w`, but the graph of `--like` has no weights of edges"):
        import_tables(nodes, weighted, TableOptions(weight="w"), earlier=without)
    with pytest.raises(ConfigError, match=r"`--weight` names `weight`, but .* has the columns: source, target; choose"):
        import_tables(nodes, plain, TableOptions(), earlier=with_weights)


def test_a_later_graph_needs_no_labels(tmp_path: Path) -> None:
    first = imported(tmp_path).graph
    edges, later = (
        tmp_path / "edges.csv",
        write(tmp_path, "id,age,plan,label\nb,3,pro,\na,3,basic,\nc,4,,\n", "later.csv"),
    )
    with pytest.raises(GraphError, match=r"column `label`: every value is missing; leave it out with `--ignore label`"):
        import_tables(later, edges, TableOptions(), earlier=first)
    found = import_tables(later, edges, read_table_options({"ignore": "label"}), earlier=first)
    assert (found.facts["unlabeled"], found.graph.masks, found.graph.in_channels) == (3, {}, first.in_channels)
    assert any(note.startswith("no labels, so that the graph serves for prediction alone") for note in found.notes)


def splits_by_id(graph: Graph) -> dict[str, str]:
    assert graph.node_ids is not None
    return {str(one): split for split, mask in graph.masks.items() for one in graph.node_ids[mask.numpy()]}


def test_nodes_of_the_earlier_graph_keep_their_splits(tmp_path: Path) -> None:
    rows = [f"{one},{one},{'rgb'[one % 3] if one % 10 else ''}\n" for one in range(150)]
    edges = "source,target\n70,71\n"
    first = imported(tmp_path, "id,x,label\n" + "".join(rows[:100]), edges)
    old = splits_by_id(first.graph)
    assert len(old) == 90
    again = imported(tmp_path, "id,x,label\n" + "".join(rows[99::-1]), edges, first.graph, seed=1)
    assert splits_by_id(again.graph) == old
    assert "split as in the earlier graph: 54 train, 18 val, 18 test" in again.notes
    more = imported(tmp_path, "id,x,label\n" + "".join(rows[50:]).replace(",60,\n", ",60,r\n"), edges, first.graph)
    new = splits_by_id(more.graph)
    assert len(new) == 45 + 45 + 1
    assert {one: new[one] for one in new if one in old} == {one: old[one] for one in old if int(one) > 50}
    assert Counter(split for one, split in new.items() if one not in old) == {"train": 28, "val": 9, "test": 9}
    said = "split as in the earlier graph for 45 nodes, and of the others 60/20/20, stratified by class, seed 0: "
    assert any(note.startswith(said) for note in more.notes)
    tested = next(one for one, split in old.items() if split == "test")
    rows = [f"{one},{one},{'r' if str(one) == tested else ''}\n" for one in range(100)]
    few = imported(tmp_path, "id,x,label\n" + "".join(rows), edges, first.graph)
    assert splits_by_id(few.graph) == {tested: "test"}
    assert "split as in the earlier graph: 0 train, 0 val, 1 test" in few.notes


def test_a_split_that_tests_on_earlier_training_nodes_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = "id,x,y,part\na,1,0,train\nb,2,1,test\nc,3,1,val\n"
    edges = "source,target\na,b\n"
    first = imported(tmp_path, nodes, edges, split_column="part").graph
    imported(tmp_path, nodes, edges, first, split_column="part")
    assert not caplog.records
    imported(tmp_path, "id,x,y,part\na,1,0,test\nb,2,1,train\nc,3,1,val\n", edges, first, split_column="part")
    (record,) = caplog.records
    assert record.message.startswith(
        "1 validation and test nodes are training nodes of the earlier graph, so that scor"
    )


@pytest.mark.parametrize(
    ("ids", "header", "drop"),
    [("abc", "a,b", False), ("abc", " a\tb", False), ("012", "0,1", False), ("012", "0,17", True)],
)
def test_an_edge_in_place_of_the_header_is_refused(tmp_path: Path, ids: str, header: str, drop: bool) -> None:
    nodes = "id,x\n" + "".join(f"{one},{number}\n" for number, one in enumerate(ids))
    edges = header + "\n" + ("\t" if "\t" in header else ",").join(ids[1:]) + "\n"
    first, second = header.replace("\t", ",").strip().split(",")
    with pytest.raises(GraphError, match=rf"line 1: `{first}` and `{second}` look like an edge, not like a"):
        imported(tmp_path, nodes, edges, drop_unknown=drop)
    given = imported(tmp_path, nodes, edges, source=first, target=second)
    assert given.graph.num_edges == 1


@pytest.mark.parametrize("header", ["buyer,seller", "a,seller", "source,target", "2020,2021", "1,2"])
def test_a_header_that_is_no_edge_is_read(tmp_path: Path, header: str) -> None:
    nodes = "id,x\n" + "".join(f"{one},1\n" for one in ("a", "b", "source", "target"))
    assert imported(tmp_path, nodes, f"{header}\na,b\n").graph.num_edges == 1


def test_columns_of_a_data_frame_may_be_named_like_nodes() -> None:
    assert Graph.from_tables({"id": [0, 1, 2], "x": [1, 2, 3]}, {"0": [0, 1], "1": [1, 2]}).num_edges == 2


def test_errors_name_file_line_and_column(tmp_path: Path) -> None:
    where = re.escape(str(tmp_path))
    with pytest.raises(GraphError, match=rf"`{where}/edges.csv`, line 3, column `target`: 'q' is not an id of "):
        imported(tmp_path, NODES, "source,target\na,b\nb,q\n")
    with pytest.raises(GraphError, match=rf"`{where}/nodes.csv`, line 7, column `id`: the id 'a' is on line 2 already"):
        imported(tmp_path, NODES + "a,1,pro,red\n")
