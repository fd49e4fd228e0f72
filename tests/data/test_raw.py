from pathlib import Path

import numpy as np
import pytest

from lazygnn.data.raw import check_finite, check_nodes, unreadable
from lazygnn.errors import GraphError


def test_errors_name_the_file_and_the_cause() -> None:
    missing, broken = (unreadable(Path("a/b"), error) for error in (FileNotFoundError(), ValueError("no number")))
    assert str(missing) == "`a/b` is missing; put the file there or download the data set again"
    assert str(broken) == "`a/b` cannot be read (ValueError: no number); download it again"


@pytest.mark.parametrize(("nodes", "wrong"), [([0, -2, 9], -2), ([0, 4, 2], 4)])
def test_a_node_outside_the_graph_is_named(nodes: list[int], wrong: int) -> None:
    with pytest.raises(GraphError, match=f"`a` names node {wrong}; nodes go from 0 to 3; download it again"):
        check_nodes(Path("a"), np.array(nodes), 4)


def test_nodes_of_the_graph_are_accepted() -> None:
    for nodes in (np.array([[0, 3], [3, 1]]), np.empty((0, 2), dtype=int)):
        check_nodes(Path("a"), nodes, 4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_row_that_is_not_finite_is_named(value: float) -> None:
    x = np.ones((4, 2), dtype=np.float32)
    check_finite(Path("a"), x)
    x[2:, 1] = value
    with pytest.raises(GraphError, match="`a` has a value in row 2 that is not a finite float32; replace it or"):
        check_finite(Path("a"), x)
