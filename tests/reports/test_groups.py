import numpy as np
import torch

from lazygnn.graph import Graph
from lazygnn.reports.groups import by_agreement, by_degree, by_distance


def chain(num_nodes: int, y: list[int] | None = None) -> Graph:
    """Returns a path whose first node is the training node, and one more node without edges."""
    at = np.arange(num_nodes - 2)
    edges = np.concatenate((np.stack((at, at + 1)), np.stack((at + 1, at))), axis=1)
    mask = np.arange(num_nodes) == 0
    labels = np.arange(num_nodes) % 2 if y is None else np.array(y)
    return Graph.from_edges(edges, np.ones((num_nodes, 1)), labels, train_mask=mask, num_classes=2)


def test_nodes_are_grouped_by_the_number_of_their_neighbors() -> None:
    num_leaves = 70
    star = np.stack((np.zeros(num_leaves, np.int64), np.arange(1, num_leaves + 1)))
    pair = np.array([[1, 1], [2, 3]])
    edges = np.concatenate((star, star[::-1], pair, pair[::-1]), axis=1)
    graph = Graph.from_edges(edges, np.ones((num_leaves + 2, 1)))
    values = torch.arange(float(num_leaves + 2))
    rows = by_degree(graph, torch.arange(num_leaves + 2), values)
    # the hub; leaf 1 has three neighbors, 2 and 3 have two; the last node has none
    assert rows == [
        {"group": "none", "nodes": 1, "mean": 71.0},
        {"group": "1", "nodes": 67, "mean": sum(range(4, 71)) / 67},
        {"group": "2 to 3", "nodes": 3, "mean": 2.0},
        {"group": "64 or more", "nodes": 1, "mean": 0.0},
    ]


def test_every_degree_belongs_to_the_group_of_its_name() -> None:
    for degree, name in (
        (4, "4 to 7"),
        (7, "4 to 7"),
        (8, "8 to 15"),
        (31, "16 to 31"),
        (63, "32 to 63"),
        (64, "64 or"),
    ):
        star = np.stack((np.zeros(degree, np.int64), np.arange(1, degree + 1)))
        graph = Graph.from_edges(np.concatenate((star, star[::-1]), axis=1), np.ones((degree + 1, 1)))
        (row,) = by_degree(graph, torch.tensor([0]), torch.ones(1))
        assert row["group"].startswith(name)


def test_nodes_are_grouped_by_the_steps_to_a_training_node() -> None:
    nodes = torch.tensor([0, 1, 2, 4, 5, 7, 8])
    rows = by_distance(chain(9), nodes, nodes.double())
    assert [(row["group"], row["nodes"], row["mean"]) for row in rows] == [
        ("0", 1, 0.0),
        ("1", 1, 1.0),
        ("2", 1, 2.0),
        ("4", 1, 4.0),
        ("5 or more, or none in reach", 3, 20 / 3),
    ]


def test_nodes_are_grouped_by_agreement_with_labeled_neighbors() -> None:
    graph = chain(7, [0, 0, 0, 1, -1, 1, 1])
    # node 2 agrees with one of two neighbors, 3 with none of one, 5 has no labeled neighbor, 6 no neighbor
    rows = by_agreement(graph, torch.tensor([1, 2, 3, 5, 6]), torch.tensor([1.0, 2.0, 3.0, 5.0, 6.0]))
    assert [(row["group"], row["nodes"], row["mean"]) for row in rows] == [
        ("no labeled neighbor", 2, 5.5),
        ("0 to 20 %", 1, 3.0),
        ("40 to 60 %", 1, 2.0),
        ("80 to 100 %", 1, 1.0),
    ]
