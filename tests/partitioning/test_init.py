import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lazygnn import partition as exported
from lazygnn import partitioning as module
from lazygnn.data.synthetic import block_graph
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.partitioning import Balance, PartitionMethod, equal_slices, partition
from lazygnn.partitioning.process import EngineFailure
from tests.partitioning.helpers import check, graph_of, same

METHODS: tuple[PartitionMethod, ...] = ("metis", "random", "contiguous")


class Counted:
    """Replaces the engines and counts the calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.inner = 0, module.__dict__["_engine_parts"]
        monkeypatch.setattr(module, "_engine_parts", self)

    def __call__(self, *args: Any) -> np.ndarray:
        self.calls += 1
        found: np.ndarray = self.inner(*args)
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
    with pytest.raises(
        ConfigError, match="`partition` is `louvain`; choose one of: auto, metis, kaminpar, random, contiguous"
    ):
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
    with pytest.raises(ConfigError, match=r"METIS .* of 144 entries into 2 parts \(too many entries for this build"):
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
        rf"METIS could not divide the graph of 10 entries into 2 parts \({failure}\); it needs about 0.0 GB of memory: "
        'free memory, choose `partition = "kaminpar"`, or choose `partition = "random"`'
    )
    with pytest.raises(ConfigError, match=message):
        partition(path_graph, 2)


def test_without_pymetis_the_message_names_other_methods(path_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ConfigError, match=r'needs `pymetis`; .*`partition = "random"` or `partition = "contiguous"`'):
        partition(path_graph, 2)
    check(partition(path_graph, 2, method="random"), 4, 2)


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


def test_the_package_exports_it() -> None:
    assert exported is partition


# KaMinPar, and the choice between the two


def test_kaminpar_finds_the_blocks_again_and_follows_the_seed(blocks: Graph) -> None:
    pytest.importorskip("kaminpar")
    first, second, other = (partition(blocks, 6, method="kaminpar", seed=seed) for seed in (0, 0, 1))
    check(first, 600, 6)
    assert same(first, second)
    assert not same(first, other)
    assert first.edge_cut(blocks.adj) < 0.18
    assert first.method == "kaminpar"
    assert str(first.engine).startswith("kaminpar 3")
    assert int(first.ptr.diff().max()) <= 1.031 * 100 + 1


@pytest.mark.parametrize("num_nodes", [600, 4000, 4001])
def test_parts_of_kaminpar_do_not_depend_on_what_memory_held(num_nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kaminpar")
    graph = block_graph(num_nodes, 6, degree=10, in_channels=4, num_classes=3)
    found = []
    # the C library of GNU fills freed memory by the first variable; the length of the others moves what memory holds
    for name, value in (("MALLOC_PERTURB_", "1"), *(("FILLER", "y" * length) for length in (0, 10, 100, 1000, 4000))):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            found.append(partition(graph, 6, method="kaminpar"))
    assert all(same(found[0], other) for other in found[1:])


@pytest.mark.parametrize(
    ("edges", "num_nodes", "num_parts"),
    [([], 3, 2), ([(0, 0)], 1, 1), ([(0, i) for i in range(1, 40)], 40, 40)],
    ids=["no edges", "one node", "a part per node"],
)
def test_kaminpar_on_odd_shapes(edges: Any, num_nodes: int, num_parts: int) -> None:
    pytest.importorskip("kaminpar")
    check(partition(graph_of(edges, num_nodes), num_parts, method="kaminpar"), num_nodes, num_parts)


def test_a_process_of_its_own_finds_the_same_parts(blocks: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    here = partition(blocks, 6, method="metis", balance="labels")
    monkeypatch.setattr(module, "_ENTRIES_IN_PLACE", 0)
    assert same(here, partition(blocks, 6, method="metis", balance="labels"))


def test_a_crash_of_an_engine_is_an_error_with_a_remedy(blocks: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_engine(*_: Any) -> None:
        raise EngineFailure("its process was ended by SIGSEGV")

    monkeypatch.setattr(module, "run_engine", run_engine)
    monkeypatch.setattr(module, "require_engine", lambda _: None)
    message = (
        rf"KaMinPar could not divide the graph of {len(blocks.adj.col)} entries into 6 parts "
        r"\(its process was ended by SIGSEGV\): free memory, or choose `partition = \"random\"`"
    )
    with pytest.raises(ConfigError, match=message):
        partition(blocks, 6, method="kaminpar")


def test_auto_takes_kaminpar_where_metis_does_not_fit(
    blocks: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("kaminpar")
    assert partition(blocks, 4, method="auto").method == "metis"
    counted = Counted(monkeypatch)
    free = 120 * len(blocks.adj.col) - 1
    monkeypatch.setattr("lazygnn.partitioning.choice.memory_at_hand", lambda: free)
    small = partition(blocks, 4, method="auto", cache=tmp_path)
    assert small.method == "kaminpar"
    assert same(small, partition(blocks, 4, method="auto", cache=tmp_path))
    assert counted.calls == 1
    # parts of METIS that are there need no memory
    large = partition(blocks, 4, method="metis", cache=tmp_path)
    again = partition(blocks, 4, method="auto", cache=tmp_path)
    assert counted.calls == 2
    assert same(large, again)
    assert (again.method, again.engine) == ("metis", large.engine)
    assert str(large.engine).startswith("pymetis ")


def test_auto_takes_the_parts_of_a_prepared_graph(blocks: Graph) -> None:
    ptr = torch.tensor([0, 100, 600])
    prepared = replace(blocks, part_ptr=ptr, part_engine="kaminpar 3.7.3")
    found = partition(prepared, 2)
    assert torch.equal(found.ptr, ptr)
    assert (found.method, found.engine) == ("contiguous", "kaminpar 3.7.3")
    assert partition(prepared, 3).method == "metis"
    assert partition(prepared, 2, method="metis").method == "metis"
    assert partition(prepared, 2, balance="edges").method == "metis"


@pytest.mark.parametrize("method", ["metis", "kaminpar"])
def test_parts_balance_what_is_asked_for(method: PartitionMethod) -> None:
    if method == "kaminpar":
        pytest.importorskip("kaminpar")
    # hubs and labels are in the first half
    first = torch.arange(400) < 200
    edges = [(i, j) for i in range(20) for j in range(20, 200)]
    edges += [(i, (i + 1) % 400) for i in range(400)]
    graph = replace(graph_of(edges, 400), masks={"train": first}, name="halves")
    degree = graph.adj.rowptr.diff()

    balances: tuple[Balance, ...] = ("nodes", "labels", "edges")
    found = {balance: partition(graph, 4, method=method, balance=balance).part_of() for balance in balances}

    def largest(balance: Balance, amount: torch.Tensor) -> float:
        share = torch.bincount(found[balance], amount.double(), minlength=4) / amount.sum()
        return 4 * float(share.max())

    assert largest("nodes", torch.ones(400)) < 1.1
    assert largest("labels", first) < 1.2 < largest("nodes", first)
    assert largest("edges", degree) < 1.1 < largest("nodes", degree)


def test_weights_belong_to_the_engines(blocks: Graph) -> None:
    with pytest.raises(ConfigError, match="`balance` is `edges`, but `partition` is `random`; choose `metis` or"):
        partition(blocks, 4, method="random", balance="edges")
