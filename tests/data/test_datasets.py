from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.data import datasets, load_graph
from lazygnn.data.sources import SOURCES
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.ops import Csr

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def write(path: Path, num_nodes: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, edge_index=np.array([[0, 1], [1, 0]]), x=np.ones((num_nodes, 1)))
    return path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides the data folder of the machine."""
    monkeypatch.chdir(tmp_path)


def test_a_path_is_used_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "sub" / "mine.npz", 2)
    write(tmp_path / "root" / "mine.npz", 3)
    assert load_graph(path, root=tmp_path / "root").num_nodes == 2
    assert load_graph("sub/mine.npz").num_nodes == 2


def test_a_name_is_searched_in_root_then_the_environment_then_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data" / "mine.npz", 2)
    assert load_graph("mine").num_nodes == 2
    write(tmp_path / "env" / "mine.npz", 3)
    monkeypatch.setenv("LAZYGNN_DATA", str(tmp_path / "env"))
    assert load_graph("mine").num_nodes == 3
    write(tmp_path / "root" / "mine.npz", 4)
    assert load_graph("mine", root=tmp_path / "root").num_nodes == 4
    assert load_graph("mine", root=str(tmp_path / "root")).name == "mine"


def test_a_file_in_root_comes_before_the_package_and_the_download(tmp_path: Path) -> None:
    for name in (datasets.EMBEDDED, "cora"):
        write(tmp_path / f"{name}.npz", 5)
        assert load_graph(name, root=tmp_path).num_nodes == 5


def test_the_embedded_graph_needs_no_folder() -> None:
    graph = load_graph("wordnet-small")
    assert graph.name == "wordnet-small"
    assert set(graph.masks) == {"train", "val", "test"}
    assert graph.class_names is not None
    assert len(graph.class_names) == graph.task.num_outputs


def test_a_missing_file_is_named() -> None:
    with pytest.raises(GraphError, match=r"no file `gone.npz`; give the path of an .npz file or the name of a"):
        load_graph("gone.npz")


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    message = r"unknown data set `coar`: no file `.*coar.npz`; set `--root` or .* to its folder, or choose one of: "
    with pytest.raises(GraphError, match=message) as error:
        load_graph("coar", root=tmp_path)
    for known in ("wordnet-small", *SOURCES):
        assert known in str(error.value)


@pytest.mark.parametrize(("value", "verified"), [(None, True), ("1", True), ("0", False)])
def test_the_environment_can_skip_the_checksums(
    value: str | None, verified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAZYGNN_VERIFY", raising=False)
    if value is not None:
        monkeypatch.setenv("LAZYGNN_VERIFY", value)
    assert datasets.verifies() is verified


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_a_public_data_set_is_downloaded_and_read_by_its_reader(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path_graph: Graph
) -> None:
    calls: list[Any] = []

    def download(*args: Any, verify: bool) -> Path:
        assert verify
        calls.append(args)
        return tmp_path / "raw"

    def reader(*args: Any) -> Graph:
        calls.append(args)
        return path_graph

    monkeypatch.setattr(datasets, "download", download)
    monkeypatch.setitem(datasets._READERS, SOURCES[name].reader, reader)
    assert load_graph(name, root=tmp_path) is path_graph
    assert calls == [(name, tmp_path), (tmp_path / "raw", name)]


@pytest.mark.skipif(not (SHARED / "cora.npz").is_file(), reason="the shared data folder is missing")
def test_cora() -> None:
    graph = load_graph("cora", root=SHARED)
    assert isinstance(graph.x, Csr)
    assert (graph.num_nodes, graph.num_edges, graph.in_channels, graph.task.num_outputs) == (2708, 5278, 1433, 7)
    assert {split: int(mask.sum()) for split, mask in graph.masks.items()} == {"train": 140, "val": 500, "test": 1000}


@pytest.mark.parametrize("name", ["edges.csv", "sub/edges.parquet", "EDGES.TSV"])
def test_a_table_is_not_a_graph(name: str) -> None:
    with pytest.raises(
        GraphError, match=rf"`{name}` is a table, not a graph; .* `lazygnn import nodes.csv edges.csv --out mygraph`"
    ):
        load_graph(name)
