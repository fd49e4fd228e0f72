import logging
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lazygnn import partition as exported
from lazygnn import partitioning as module
from lazygnn.data.synthetic import block_graph
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.ops import Csr, row_chunks
from lazygnn.partitioning import (
    Partition,
    PartitionMethod,
    _fill_empty,
    default_cache,
    describe,
    equal_slices,
    partition,
)

METHODS: tuple[PartitionMethod, ...] = ("metis", "random", "contiguous")


def graph_of(edges: Any, num_nodes: int) -> Graph:
    return Graph.from_edges(np.array(edges, dtype=np.int64).reshape(-1, 2).T, np.ones((num_nodes, 1)))


def check(found: Partition, num_nodes: int, num_parts: int) -> None:
    assert found.num_parts == num_parts
    assert found.order.dtype == found.ptr.dtype == torch.int64
    assert found.order.sort().values.tolist() == list(range(num_nodes))
    assert (int(found.ptr[0]), int(found.ptr[-1])) == (0, num_nodes)
    assert int(found.ptr.diff().min()) >= 1
    for start, stop in zip(found.ptr.tolist(), found.ptr.tolist()[1:], strict=False):
        part = found.order[start:stop]
        assert torch.equal(part, part.sort().values)


def same(a: Partition, b: Partition) -> bool:
    return torch.equal(a.order, b.order) and torch.equal(a.ptr, b.ptr)


@pytest.fixture(scope="module")
def blocks() -> Graph:
    return block_graph(600, 6, degree=10, in_channels=4, num_classes=3, seed=1)


class Counted:
    """Replaces METIS and counts the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.inner = 0, module.__dict__["_metis_parts"]
        monkeypatch.setattr(module, "_metis_parts", self)

    def __call__(self, *args: Any) -> Tensor:
        self.calls += 1
        found: Tensor = self.inner(*args)
        return found


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 24))
def test_every_graph_is_cut_into_parts_that_are_not_empty(data: st.DataObject, num_nodes: int) -> None:
    node = st.integers(0, num_nodes - 1)
    # directed, repeated, self-loops, or none
    edges = data.draw(st.lists(st.tuples(node, node), max_size=60))
    num_parts = data.draw(st.integers(1, num_nodes))
    seed = data.draw(st.integers(-5, 2**40))
    graph = graph_of(edges, num_nodes)
    for method in METHODS:
        found = partition(graph, num_parts, method=method, seed=seed)
        check(found, num_nodes, num_parts)
        assert same(found, partition(graph, num_parts, method=method, seed=seed))


@pytest.mark.parametrize("num_parts", [2, 9, 40, 99, 100])
@pytest.mark.parametrize("shape", ["empty", "star", "loops", "two", "complete"])
def test_odd_shapes(shape: str, num_parts: int) -> None:
    edges = {
        "empty": [],
        "star": [(0, i) for i in range(1, 100)],
        "loops": [(i, i) for i in range(100)],
        "two": [(i, i + 2) for i in range(98)],
        "complete": [(i, j) for i in range(100) for j in range(i)],
    }[shape]
    check(partition(graph_of(edges, 100), num_parts), 100, num_parts)


def test_one_part_does_not_need_metis(path_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    for method in METHODS:
        found = partition(path_graph, 1, method=method)
        assert found.order.tolist() == [0, 1, 2, 3]
        assert found.ptr.tolist() == [0, 4]
    assert counted.calls == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("num_parts", [-1, 0, 5])
def test_impossible_numbers_of_parts(path_graph: Graph, method: PartitionMethod, num_parts: int) -> None:
    with pytest.raises(ConfigError, match=rf"`num_parts` is {num_parts}, but graph `path` has 4 nodes; .* 1 to 4"):
        partition(path_graph, num_parts, method=method)


def test_an_unknown_method_lists_the_known_ones(path_graph: Graph) -> None:
    with pytest.raises(ConfigError, match="`partition` is `louvain`; choose one of: metis, random, contiguous"):
        partition(path_graph, 2, method="louvain")  # type: ignore[arg-type]


def test_contiguous_is_the_identity_in_equal_slices(blocks: Graph) -> None:
    found = partition(blocks, 7, method="contiguous")
    assert torch.equal(found.order, torch.arange(600))
    assert sorted(set(found.ptr.diff().tolist())) == [85, 86]
    assert blocks.permute(found.order) is blocks


def test_random_parts_have_equal_sizes_and_follow_the_seed(blocks: Graph) -> None:
    found = partition(blocks, 7, method="random", seed=3)
    assert torch.equal(found.ptr, equal_slices(600, 7))
    assert not same(found, partition(blocks, 7, method="random", seed=4))


def test_metis_finds_the_blocks(blocks: Graph) -> None:
    cuts = {method: partition(blocks, 6, method=method).edge_cut(blocks.adj) for method in METHODS}
    assert cuts["contiguous"] == pytest.approx(0.13, abs=0.02)
    assert cuts["metis"] < 1.2 * cuts["contiguous"] < 0.5 * cuts["random"]
    sizes = partition(blocks, 6).ptr.diff()
    assert int(sizes.max()) <= 1.1 * int(sizes.min())


def test_self_loops_do_not_reach_metis(monkeypatch: pytest.MonkeyPatch) -> None:
    import pymetis

    seen: list[Any] = []
    inner = pymetis.part_graph

    def part_graph(num_parts: int, adjacency: Any, **options: Any) -> Any:
        seen.append(adjacency)
        return inner(num_parts, adjacency, warn_on_copies=True, **options)

    monkeypatch.setattr(pymetis, "part_graph", part_graph)
    monkeypatch.setattr("lazygnn.ops.csr._ENTRIES_AT_ONCE", 2)
    partition(graph_of([(0, 1), (1, 2), (3, 3)], 4), 2)
    assert seen[0].adj_starts.tolist() == [0, 1, 3, 4, 4]
    assert seen[0].adjacent.tolist() == [1, 0, 2, 1]
    assert seen[0].adjacent.dtype == seen[0].adj_starts.dtype == pymetis.zero_copy_dtype()


def test_a_graph_too_large_for_the_build_of_metis_is_refused(
    path_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pymetis

    monkeypatch.setattr(pymetis, "zero_copy_dtype", lambda: np.dtype(np.int8))
    many = graph_of([(i, j) for i in range(12) for j in range(i)], 12)
    with pytest.raises(ConfigError, match="has 144 entries, too many for this build of METIS"):
        partition(many, 2)


@pytest.mark.parametrize("failure", [MemoryError("no memory"), RuntimeError("unknown exception")])
def test_a_failure_of_metis_has_a_remedy(
    failure: Exception, path_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pymetis

    def part_graph(*args: Any, **options: Any) -> None:
        raise failure

    monkeypatch.setattr(pymetis, "part_graph", part_graph)
    message = (
        rf"METIS could not divide the graph into 2 parts \({failure}\); it needs about 0.0 GB of memory for 10 entries"
    )
    with pytest.raises(ConfigError, match=message):
        partition(path_graph, 2)


def test_without_pymetis_the_message_names_other_methods(path_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ImportError, match=r'needs `pymetis`; .*`partition = "random"` or `partition = "contiguous"`'):
        partition(path_graph, 2)
    check(partition(path_graph, 2, method="random"), 4, 2)


def test_empty_parts_get_the_last_nodes_of_the_largest() -> None:
    part = _fill_empty(torch.tensor([2, 2, 2, 0, 0, 2]), 5)
    assert part.tolist() == [2, 2, 3, 0, 4, 1]


@pytest.mark.parametrize("method", METHODS)
def test_edge_cut_by_hand(method: PartitionMethod) -> None:
    graph = graph_of([(0, 1), (1, 2), (2, 3), (0, 3), (4, 5)], 6)
    found = Partition(torch.tensor([0, 1, 4, 2, 3, 5]), torch.tensor([0, 3, 6]))
    assert found.part_of().tolist() == [0, 0, 1, 1, 0, 1]
    assert found.edge_cut(graph.adj) == pytest.approx(3 / 5)
    assert partition(graph_of([], 3), 3, method=method).edge_cut(graph_of([], 3).adj) == 0


@pytest.mark.parametrize("num_layers", [0, 1, 2, 3])
@pytest.mark.parametrize("num_parts", [1, 5, 70])
def test_summary_equals_a_dense_search(
    blocks: Graph, num_parts: int, num_layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = block_graph(140, 5, degree=3, in_channels=1, num_classes=2)
    found = partition(graph, num_parts)
    monkeypatch.setattr("lazygnn.ops.csr._ENTRIES_AT_ONCE", 50)
    summary = describe(graph, found, num_layers)
    dense = graph.adj.to_dense() > 0
    halos: list[list[float]] = []
    for part in range(num_parts):
        reached = found.part_of() == part
        size, sizes = int(reached.sum()), [0.0]
        for _ in range(max(num_layers, 1)):
            reached = dense[reached].any(dim=0)
            sizes.append((int(reached.sum()) - size) / size)
        halos.append(sizes)
    assert summary.num_parts == num_parts
    assert summary.smallest_part == int(found.ptr.diff().min())
    assert summary.largest_part == int(found.ptr.diff().max())
    assert summary.edge_cut == found.edge_cut(graph.adj)
    assert summary.mean_halo == pytest.approx(np.mean([sizes[1] for sizes in halos]))
    assert summary.max_halo == pytest.approx(max(sizes[1] for sizes in halos))
    assert summary.num_layers == num_layers
    assert summary.mean_deep_halo == pytest.approx(np.mean([sizes[num_layers] for sizes in halos]))


def test_the_halos_of_many_parts_are_those_of_a_sample(blocks: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    found = partition(blocks, 600, method="contiguous")
    monkeypatch.setattr(module, "_MAX_DESCRIBED", 3)
    degree = blocks.degree - 1
    assert describe(blocks, found, 1).mean_halo == pytest.approx(float(degree[[0, 200, 400]].mean()))
    with pytest.raises(ValueError, match="`num_layers` must not be negative, got -1"):
        describe(blocks, found, -1)


def test_the_second_call_reads_the_cache(blocks: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    cache = tmp_path / "a" / "b"
    first = partition(blocks, 4, cache=cache)
    assert same(first, partition(blocks, 4, cache=cache))
    assert counted.calls == 1
    assert [file.suffix for file in cache.iterdir()] == [".npz"]
    partition(blocks, 5, cache=cache)
    partition(blocks, 4, seed=1, cache=cache)
    other = block_graph(600, 6, degree=10, in_channels=4, num_classes=3, seed=2)
    partition(other, 4, cache=cache)
    assert counted.calls == 4
    assert same(first, partition(blocks, 4))
    assert counted.calls == 5


def test_random_and_contiguous_parts_are_not_cached(blocks: Graph, tmp_path: Path) -> None:
    for method in ("random", "contiguous"):
        partition(blocks, 4, method=method, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []


def corrupt(kind: str, file: Path) -> None:
    with np.load(file) as arrays:
        order, ptr = arrays["order"], arrays["ptr"]
    if kind == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "array":
        with file.open("wb") as stream:
            np.save(stream, order)
    elif kind == "pickle":
        np.savez(file, order=np.array([{}], dtype=object), ptr=ptr)
    elif kind == "names":
        np.savez(file, order=order)
    elif kind == "type":
        np.savez(file, order=order.astype(np.int32), ptr=ptr)
    elif kind == "shape":
        np.savez(file, order=order[1:], ptr=ptr)
    elif kind == "twice":
        np.savez(file, order=np.zeros_like(order), ptr=ptr)
    else:
        np.savez(file, order=order, ptr=np.array([0, 0, 5, 5, 600]))


@pytest.mark.parametrize("kind", ["cut", "empty", "array", "pickle", "names", "type", "shape", "twice", "ptr"])
def test_a_corrupt_file_is_ignored_and_written_again(
    kind: str, blocks: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = partition(blocks, 4, cache=tmp_path)
    (file,) = tmp_path.iterdir()
    corrupt(kind, file)
    with caplog.at_level(logging.WARNING):
        assert same(first, partition(blocks, 4, cache=tmp_path))
    assert f"the cached partition `{file}` is corrupt" in caplog.text
    caplog.clear()
    assert same(first, partition(blocks, 4, cache=tmp_path))
    assert not caplog.text


def test_a_cache_that_cannot_be_written_is_a_warning(
    blocks: Graph, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    found = partition(blocks, 4, cache=tmp_path / "file")
    check(found, 600, 4)
    assert "the partition cannot be cached in" in caplog.text


def test_the_default_cache_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAZYGNN_CACHE", str(tmp_path))
    assert default_cache() == tmp_path
    monkeypatch.delenv("LAZYGNN_CACHE")
    monkeypatch.setenv("HOME", os.sep + "home-of-nobody")
    assert default_cache() == Path("/home-of-nobody/.cache/lazygnn")


def test_the_package_exports_it() -> None:
    assert exported is partition


# `Graph.permute` turns parts into slices


def shuffled(num_nodes: int, seed: int = 0) -> Tensor:
    return torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("entries", [1, 7, 1 << 22])
@pytest.mark.parametrize("sparse", [False, True])
def test_permute_renames_rows_and_columns(sparse: bool, entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazygnn.ops.csr._ENTRIES_AT_ONCE", entries)
    rng = np.random.default_rng(0)
    x: Any = (rng.random((40, 5)) * (rng.random((40, 5)) < 0.4)).astype(np.float32)
    matrix = scipy.sparse.csr_matrix(x)
    features = Csr.from_arrays(matrix.indptr, matrix.indices, matrix.data, 5) if sparse else x
    graph = Graph.from_edges(
        rng.integers(0, 40, (2, 90)),
        features,
        rng.integers(0, 3, 40),
        edge_weight=rng.random(90),
        train_mask=np.arange(40) < 20,
        test_mask=np.arange(40) > 30,
        node_ids=[f"node {i}" for i in range(40)],
    )
    order = shuffled(40)
    moved = graph.permute(order)
    assert torch.equal(moved.adj.to_dense(), graph.adj.to_dense()[order][:, order])
    for row in range(40):
        cols = moved.adj.col[int(moved.adj.rowptr[row]) : int(moved.adj.rowptr[row + 1])]
        assert bool((cols.diff() > 0).all())
    assert (moved.adj.rowptr.dtype, moved.adj.col.dtype) == (graph.adj.rowptr.dtype, graph.adj.col.dtype)
    dense = moved.x.to_dense() if isinstance(moved.x, Csr) else moved.x
    assert isinstance(moved.x, Csr) == sparse
    assert torch.equal(dense, torch.from_numpy(x)[order])
    assert torch.equal(moved.y, graph.y[order])
    assert torch.equal(moved.degree, graph.degree[order])
    assert {split: mask.tolist() for split, mask in moved.masks.items()} == {
        split: mask[order].tolist() for split, mask in graph.masks.items()
    }
    assert moved.node_ids is not None
    assert moved.node_ids.tolist() == [f"node {i}" for i in order.tolist()]
    assert (moved.name, moved.task) == (graph.name, graph.task)
    back = moved.permute(order.argsort())
    for a, b in ((back.adj.rowptr, graph.adj.rowptr), (back.adj.col, graph.adj.col), (back.adj.value, graph.adj.value)):
        assert torch.equal(a, b)


def test_parts_of_a_permuted_graph_are_slices(blocks: Graph) -> None:
    found = partition(blocks, 6)
    moved = blocks.permute(found.order)
    again = Partition(torch.arange(600), found.ptr)
    assert again.edge_cut(moved.adj) == found.edge_cut(blocks.adj)


def test_the_identity_gives_the_graph_itself(blocks: Graph) -> None:
    assert blocks.permute(torch.arange(600)) is blocks
    assert blocks.permute(torch.arange(600, dtype=torch.int32)) is blocks


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 1, 2, 2], [1, 2, 3, 4], [-1, 0, 1, 2], [[0, 1, 2, 3]]])
def test_an_order_that_is_not_a_permutation_is_refused(path_graph: Graph, order: Any) -> None:
    with pytest.raises(ValueError, match=r"`order`, of shape \(.*\), must hold every node from 0 to 3 once"):
        path_graph.permute(torch.tensor(order))


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 20))
def test_row_chunks_cover_all_rows(counts: list[int], entries: int) -> None:
    rowptr = torch.tensor([0, *counts]).cumsum(0).int()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lazygnn.ops.csr._ENTRIES_AT_ONCE", entries)
        chunks = list(row_chunks(rowptr))
    assert [row for start, stop in chunks for row in range(start, stop)] == list(range(len(counts)))
    for start, stop in chunks:
        assert stop == start + 1 or int(rowptr[stop] - rowptr[start]) <= entries
