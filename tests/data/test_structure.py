from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.data import structure
from lazygnn.data.structure import check_finite, check_structure
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.ops import Csr
from lazygnn.task import Task


def changed(array: Tensor, at: int, value: float) -> Tensor:
    array = array.clone()
    array[at] = value
    return array


def with_adj(graph: Graph, part: str, at: int, value: float) -> Graph:
    arrays: dict[str, Any] = {part: changed(getattr(graph.adj, part), at, value)}
    return replace(graph, adj=replace(graph.adj, **arrays))


def with_masks(graph: Graph, **masks: Tensor) -> Graph:
    return replace(graph, masks={**graph.masks, **masks})


def multi(graph: Graph, value: float) -> Graph:
    y = torch.tensor([[0.0, 1], [1, 1], [0, value], [-1, -1]])
    return replace(graph, y=y, task=Task("multi-label", 2), masks={})


def sparse(graph: Graph, rowptr: list[int], col: list[int]) -> Graph:
    return replace(graph, x=Csr(torch.tensor(rowptr), torch.tensor(col), torch.ones(3), 3))


WRONG: list[tuple[Callable[[Graph], Graph], str]] = [
    (lambda graph: with_adj(graph, "rowptr", 1, 6), "`rowptr` does not rise from 0 to 10, the number of entries"),
    (lambda graph: with_adj(graph, "rowptr", 1, 0), "`rowptr` does not rise"),
    (lambda graph: with_adj(graph, "rowptr", 2, -(2**30)), "`rowptr` does not rise"),
    (lambda graph: with_adj(graph, "rowptr", 4, 2**30), "`rowptr` does not rise"),
    (lambda graph: with_adj(graph, "col", 5, 4), "`col` holds 4; columns go from 0 to 3"),
    (lambda graph: with_adj(graph, "col", 5, -1), "`col` holds -1"),
    (lambda graph: with_adj(graph, "col", 1, 0), "`col` does not rise within a row"),
    (lambda graph: with_adj(graph, "value", 3, float("nan")), "`value` holds a number that is negative or not finite"),
    (lambda graph: with_adj(graph, "value", 3, -1), "`value` holds a number that is negative or not finite"),
    (lambda graph: replace(graph, degree=changed(graph.degree, 0, float("inf"))), "`degree` holds a number"),
    (lambda graph: replace(graph, y=changed(graph.y, 3, 2)), "`y` holds label 2; labels go from 0 to 1, and -1 means"),
    (lambda graph: replace(graph, y=changed(graph.y, 3, -2)), "`y` holds label -2"),
    (lambda graph: multi(graph, 0.5), "`y` holds a number other than 0, 1 and -1"),
    (
        lambda graph: replace(graph, y=torch.full((4, 1), torch.inf), task=Task("regression", 1), masks={}),
        "`y` holds an infinite number",
    ),
    (lambda graph: with_masks(graph, val=graph.masks["train"]), "`val_mask` overlaps another split at node 0"),
    (
        lambda graph: with_masks(graph, val=torch.tensor([0, 2, 0, 0], dtype=torch.uint8).view(torch.bool)),
        "`val_mask` holds bytes other than 0 and 1",
    ),
    (lambda graph: replace(graph, y=changed(graph.y, 3, -1)), "`test_mask` has node 3, which has no label"),
    (lambda graph: replace(graph, node_ids=np.array(["a", "b", "a", "c"])), "`node_ids` holds an id more than once"),
    (lambda graph: sparse(graph, [0, 1, 3, 2, 3], [0, 1, 2]), "`x_rowptr` does not rise from 0 to 3"),
    (lambda graph: sparse(graph, [0, 1, 1, 2, 3], [0, 1, 3]), "`x_col` holds 3; columns go from 0 to 2"),
]


@pytest.mark.parametrize("entries", [2, 1 << 22])
def test_a_sound_graph_passes(block_graph: Graph, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "_ENTRIES_AT_ONCE", entries)
    check_structure(block_graph)
    check_finite(block_graph)


@pytest.mark.parametrize("entries", [1, 3, 1 << 22])
@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_is_wrong_is_named(
    path_graph: Graph, change: Callable[[Graph], Graph], message: str, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at the bounds of the pieces that are read at a time."""
    monkeypatch.setattr(structure, "_ENTRIES_AT_ONCE", entries)
    check_structure(path_graph)
    with pytest.raises(GraphError, match=message):
        check_structure(change(path_graph))


def test_features_that_are_not_finite_are_found(path_graph: Graph) -> None:
    assert isinstance(path_graph.x, Tensor)
    x = path_graph.x.clone()
    x[2, 1] = torch.nan
    check_structure(replace(path_graph, x=x))
    with pytest.raises(GraphError, match="`x` holds a number that is not finite, at 2"):
        check_finite(replace(path_graph, x=x))
    x[2, 1] = -torch.inf
    with pytest.raises(GraphError, match="`x` holds a number that is not finite, at 2"):
        check_finite(replace(path_graph, x=x))
    rows = Csr(torch.arange(5), torch.zeros(4, dtype=torch.long), torch.tensor([1, torch.inf, 0, 0]), 3)
    with pytest.raises(GraphError, match="`x_value` holds a number that is not finite, at 1"):
        check_finite(replace(path_graph, x=rows))
