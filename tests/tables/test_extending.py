from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.tables.extending import Extended, extend_graph
from tests.tables.helpers import EDGES, NODES, imported, write

NEW = "id,plan,age\nx,pro,50\ny,gold,\n"
NEW_EDGES = "source,target\nx,a\ny,x\n"


def extended(folder: Path, graph: Graph, nodes: str = NEW, edges: str | None = NEW_EDGES, **options: Any) -> Extended:
    table = None if edges is None else write(folder, edges, "new_edges.csv")
    return extend_graph(graph, write(folder, nodes, "new.csv"), table, **options)


def features(graph: Graph) -> Tensor:
    assert isinstance(graph.x, Tensor)
    return graph.x


@pytest.mark.parametrize("structural", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_new_rows_join_the_graph_as_if_they_had_been_imported_with_it(
    tmp_path: Path, structural: bool, weighted: bool
) -> None:
    def with_weights(text: str) -> str:
        first, *rest = text.splitlines()
        lines = [f"{first},weight", *(f"{line},{number % 3 + 0.5}" for number, line in enumerate(rest))]
        return "\n".join(lines) + "\n" if weighted else text

    graph = imported(tmp_path, NODES, with_weights(EDGES), structural=structural).graph
    found = extended(tmp_path, graph, edges=with_weights(NEW_EDGES))
    all_nodes = NODES + "x,50,pro,\ny,,gold,\n"
    all_edges = with_weights(EDGES) + with_weights(NEW_EDGES).split("\n", 1)[1]
    together = imported(tmp_path, all_nodes, all_edges, structural=structural).graph
    torch.testing.assert_close(found.whole.adj.to_dense(), together.adj.to_dense())
    torch.testing.assert_close(found.whole.degree, together.degree)
    assert found.whole.y.tolist() == [*graph.y.tolist(), -1, -1]
    assert torch.equal(features(found.whole)[:5], features(graph))
    scale = 50**0.5
    np.testing.assert_allclose(features(found.new)[:, :5], [[10 / scale, 0, 0, 1, 0], [0, 1, 0, 0, 0]], rtol=1e-6)
    if structural:
        torch.testing.assert_close(features(found.new)[:, 6:], features(together)[5:, 7:])
    assert found.new.node_ids is not None
    assert found.new.node_ids.tolist() == ["x", "y"]
    assert found.new.num_edges == 1
    assert found.new.schema == graph.schema
    assert all(mask[5:].sum() == 0 and len(mask) == 7 for mask in found.whole.masks.values())


def test_new_rows_need_no_edges(tmp_path: Path) -> None:
    found = extended(tmp_path, imported(tmp_path).graph, edges=None)
    assert found.whole.adj.to_dense()[5:, :5].abs().sum() == 0
    assert found.notes == (
        f"2 new nodes from `{tmp_path / 'new.csv'}`",
        "missing values: 1 in age; replaced by the mean or by no category, and marked by one more feature",
        "values that are not a known category, and count as none: 1 in plan",
        "2 of them have no edge, so that their own features alone count",
    )


@pytest.mark.parametrize(
    ("label", "unknown"), [(["0.5", "1", "2", "3", ""], "nan"), (["p;q", "p", "q", "p", ""], "-1.0")]
)
def test_new_rows_have_no_label_whatever_the_task(tmp_path: Path, label: list[str], unknown: str) -> None:
    lines = [line.rsplit(",", 1)[0] for line in NODES.splitlines()]
    nodes = "\n".join([lines[0] + ",y", *(f"{line},{y}" for line, y in zip(lines[1:], label, strict=True))])
    found = extended(tmp_path, imported(tmp_path, nodes).graph)
    assert {str(value) for value in found.whole.y[5:].flatten().tolist()} == {unknown}


def test_edges_of_unknown_nodes_can_be_dropped(tmp_path: Path) -> None:
    graph = imported(tmp_path).graph
    with pytest.raises(GraphError, match=r"new_edges.csv`, line 2, column `target`: 'q' is not an id of the graph"):
        extended(tmp_path, graph, edges="source,target\nx,q\n")
    notes = extended(tmp_path, graph, edges="source,target\nx,q\nx,a\n", drop_unknown=True).notes
    assert "1 edges name an unknown node, and are dropped" in notes


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (
            "id,plan\nx,pro\n",
            None,
            r"new.csv` has no column `age`, which the graph was imported with; add it, and",
        ),
        (NEW, "from,to\nx,a\n", r"new_edges.csv` has no column `source`, which the graph was imported with"),
        (
            "id,plan,age\nx,pro,1\nb,pro,1\n",
            None,
            r"line 3, column `id`: 'b' is a node of the graph already \(1 such",
        ),
        ("id,plan,age\nx,pro,old\n", None, r"new.csv`, line 2, column `age`: 'old' is not a number"),
    ],
)
def test_wrong_rows_are_refused(tmp_path: Path, nodes: str, edges: str | None, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        extended(tmp_path, imported(tmp_path).graph, nodes, edges)


def test_a_graph_without_a_schema_cannot_be_extended(tmp_path: Path) -> None:
    graph = replace(imported(tmp_path).graph, schema=None)
    with pytest.raises(GraphError, match=r"graph `graph` has no schema, since it was not imported from tables"):
        extended(tmp_path, graph)
