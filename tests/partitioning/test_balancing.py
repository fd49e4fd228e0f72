from dataclasses import replace
from typing import Any

import pytest

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.partitioning.balancing import node_weights


def test_weights_by_hand(path_graph: Graph) -> None:
    assert node_weights(path_graph, "nodes") is None
    edges, labels = node_weights(path_graph, "edges"), node_weights(path_graph, "labels")
    assert edges is not None
    assert labels is not None
    # neighbors and the node itself
    assert edges.tolist() == [2, 3, 3, 2]
    # two of four nodes are labeled, so that nine tenths of the weight are 9 * 4 / 2 each
    assert labels.tolist() == [19, 1, 19, 1]


@pytest.mark.parametrize(
    ("balance", "message"),
    [
        ("labels", "`balance` is `labels`, but graph `path` has no training nodes; give a `train_mask`, or omit"),
        ("features", "`balance` is `features`; choose one of: nodes, labels, edges"),
    ],
)
def test_what_cannot_be_balanced_is_refused(path_graph: Graph, balance: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        node_weights(replace(path_graph, masks={}), balance)
