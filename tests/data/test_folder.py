import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from lazygnn.data import load_graph
from lazygnn.data.folder import ArrayWriter, load_folder, read_entries, save_folder, staged_folder
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.ops import Csr
from lazygnn.untrusted.arrays import PARSING

EDGES = np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


def sparse_graph() -> Graph:
    """Everything a graph can have: sparse features, several labels, weights, names."""
    x = Csr.from_arrays(np.array([0, 2, 2, 3, 4]), np.array([0, 4, 1, 2]), np.array([0.5, -1, 3, 1e-30]), 5)
    return Graph.from_edges(
        EDGES,
        x,
        np.array([[0, 1], [1, 1], [0, 0], [-1, -1]]),
        edge_weight=np.array([0.5, 0.5, 2, 2, 3, 3]),
        train_mask=np.array([True, False, False, False]),
        test_mask=np.array([False, True, True, False]),
        node_ids=["a", "bé", "c" * 40, ""],
        class_names=("left", "rïght"),
        name="small one",
    )


def bare_graph() -> Graph:
    return Graph.from_edges(np.empty((2, 0), dtype=int), np.ones((3, 1)))


def regression_graph() -> Graph:
    graph = Graph.from_edges(EDGES, np.ones((4, 2)), np.array([0.5, np.nan, -3, 8]), node_ids=np.array([3, 1, 0, 2]))
    return graph.to(torch.float64)


def no_features_graph() -> Graph:
    empty = Csr.from_arrays(np.zeros(5, dtype=int), np.empty(0, dtype=int), np.empty(0), 7)
    return Graph.from_edges(EDGES, empty)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Csr):
        pairs = ((a.rowptr, b.rowptr), (a.col, b.col), (a.value, b.value), (a.num_cols, b.num_cols))
        return all(same(left, right) for left, right in pairs)
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and bool(a.numpy().tobytes() == b.numpy().tobytes())
    if isinstance(a, np.ndarray):
        return bool(a.dtype == b.dtype and (a == b).all())
    return bool(a == b)


def assert_same(a: Graph, b: Graph) -> None:
    for field in ("x", "y", "adj", "degree", "task", "node_ids", "class_names", "name"):
        assert same(getattr(a, field), getattr(b, field)), field
    assert list(a.masks) == list(b.masks)
    for split in a.masks:
        assert same(a.masks[split], b.masks[split])


@pytest.mark.parametrize("make", [sparse_graph, bare_graph, regression_graph, no_features_graph])
def test_round_trip_bit_for_bit(make: Any, tmp_path: Path) -> None:
    graph = make()
    save_folder(graph, tmp_path / "g")
    assert_same(load_folder(tmp_path / "g"), graph)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_round_trip_of_dense_features(block_graph: Graph, tmp_path: Path) -> None:
    save_folder(block_graph, str(tmp_path / "g"))
    loaded = load_folder(str(tmp_path / "g"))
    assert_same(loaded, block_graph)
    assert list(loaded.masks) == ["train", "val", "test"]


def test_one_header_is_parsed_at_a_time(block_graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_folder(block_graph, tmp_path / "g")
    alone = list[bool]()
    for name in ("open_memmap", "read_array_header_1_0"):
        function = getattr(np.lib.format, name)

        def noted(*args: Any, function: Any = function, **options: Any) -> Any:
            alone.append(PARSING.locked())
            return function(*args, **options)

        monkeypatch.setattr(np.lib.format, name, noted)
    load_folder(tmp_path / "g")
    read_entries(tmp_path / "g", "y", 0, 3)
    assert len(alone) > 8
    assert all(alone)


def mapped_files() -> str:
    return Path("/proc/self/maps").read_text()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list mapped files")
def test_arrays_stay_on_disk(block_graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "g"
    save_folder(block_graph, folder)
    assert str(folder) not in mapped_files()
    loaded = load_folder(folder)
    for name in ("rowptr", "col", "value", "degree", "x", "y", "train_mask"):
        assert f"{folder / name}.npy" in mapped_files()
    assert_same(loaded, block_graph)


def resident_kib(file: Path) -> int:
    """Returns how much of a mapped file is in the memory of this process."""
    found, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            inside = line.endswith(f" {file}")
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell what is in memory")
def test_what_the_checks_have_read_does_not_stay_in_memory(tmp_path: Path) -> None:
    x = np.ones((20_000, 100), np.float32)
    save_folder(Graph.from_edges(np.empty((2, 0), dtype=int), x), tmp_path / "g")
    loaded = load_folder(tmp_path / "g")
    file = tmp_path / "g" / "x.npy"
    assert resident_kib(file) < x.nbytes / 1024 / 4
    assert isinstance(loaded.x, Tensor)
    assert float(loaded.x.sum()) == x.size
    # the measurement sees what is read
    assert resident_kib(file) > x.nbytes / 1024 / 2


def test_changes_stay_in_memory(block_graph: Graph, tmp_path: Path) -> None:
    save_folder(block_graph, tmp_path / "g")
    loaded = load_folder(tmp_path / "g")
    assert isinstance(loaded.x, Tensor)
    loaded.x.zero_()
    loaded.y.fill_(-1)
    assert_same(load_folder(tmp_path / "g"), block_graph)


def test_a_mapped_graph_computes_and_moves_as_any_other(block_graph: Graph, tmp_path: Path) -> None:
    save_folder(block_graph, tmp_path / "g")
    loaded = load_folder(tmp_path / "g")
    order = torch.arange(60).flip(0)
    assert_same(loaded.permute(order), block_graph.permute(order))
    assert isinstance(loaded.x, Tensor)
    assert isinstance(block_graph.x, Tensor)
    assert torch.equal(loaded.adj.tensor @ loaded.x, block_graph.adj.tensor @ block_graph.x)


def test_a_graph_may_be_saved_to_its_own_folder(block_graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "g"
    save_folder(block_graph, folder)
    loaded = load_folder(folder)
    save_folder(loaded.permute(torch.arange(60).flip(0)), folder)
    assert_same(loaded, block_graph)
    assert_same(load_folder(folder).permute(torch.arange(60).flip(0)), block_graph)
    save_folder(sparse_graph(), folder)
    assert_same(load_folder(folder), sparse_graph())
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_half_precision_is_widened_first(path_graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"`value` has type torch.bfloat16; widen the graph with `graph.to\(torch.flo"):
        save_folder(path_graph.to(torch.bfloat16), tmp_path / "g")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_other_files_is_left_alone(path_graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "g" / "raw").mkdir(parents=True)
    with pytest.raises(GraphError, match=r"g` holds `raw`, which does not belong to a graph; choose another folder"):
        save_folder(path_graph, tmp_path / "g")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(GraphError, match="file` is not a folder; choose another path"):
        save_folder(path_graph, tmp_path / "file")
    with pytest.raises(GraphError, match=r"could not write `.*`: .*; free the space or choose another folder"):
        save_folder(path_graph, tmp_path / "file" / "g")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "g"]
    assert (tmp_path / "file").read_text() == "mine"


def test_an_interrupted_save_leaves_the_earlier_graph(
    path_graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_folder(path_graph, tmp_path / "g")

    def full(*args: Any, **options: Any) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(GraphError, match="no space left on device; free the space"):
            save_folder(sparse_graph(), tmp_path / "g")
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.suffix == ".part":
            raise OSError("not now")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        with pytest.raises(GraphError, match="not now"):
            save_folder(sparse_graph(), tmp_path / "g")
    with pytest.raises(KeyboardInterrupt), staged_folder(tmp_path / "g"):
        raise KeyboardInterrupt
    assert_same(load_folder(tmp_path / "g"), path_graph)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


@pytest.mark.parametrize("width", [None, 3])
def test_the_writer_appends_rows(width: int | None, tmp_path: Path) -> None:
    shape = (1000,) if width is None else (1000, width)
    rows = np.random.default_rng(0).random(shape).astype(np.float32)
    with ArrayWriter(tmp_path / "a.npy", np.dtype(np.float32), width) as file:
        for start in range(0, 1000, 300):
            file.append(rows[start : start + 300].astype(np.float64))
    assert np.array_equal(np.load(tmp_path / "a.npy"), rows)


# errors in a folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(sparse_graph(), tmp_path / "g")
    return tmp_path / "g"


@pytest.fixture
def dense_folder(path_graph: Graph, tmp_path: Path) -> Path:
    save_folder(path_graph, tmp_path / "dense")
    return tmp_path / "dense"


WRONG: list[tuple[str, Any, str]] = [
    (
        "rowptr",
        np.zeros(4, dtype=np.int32),
        r"holds int32 of shape \[4\], not int32 or int64 of shape \[5\] in C order",
    ),
    ("rowptr", np.array([1, 2, 3, 4, 10], dtype=np.int32), "goes from 1 to 10; it must rise from 0"),
    ("rowptr", np.array([0, 2, 3, 4, -1], dtype=np.int32), "goes from 0 to -1; it must rise from 0"),
    ("rowptr", np.array([0, 2, 5, 8, 11], dtype=np.int32), r"holds int32 of shape \[10\], not int32 of shape \[11\]"),
    ("rowptr", np.array([0.0, 2, 5, 8, 10]), "holds float64"),
    ("col", np.zeros(10, dtype=np.int64), r"col.npy` holds int64 of shape \[10\], not int32 of shape \[10\]"),
    ("col", np.zeros(10, dtype=">i4"), "col.npy` holds >i4"),
    ("value", np.zeros((10, 1), dtype=np.float32), r"value.npy` holds float32 of shape \[10, 1\]"),
    ("value", np.zeros(10, dtype=np.float16), "value.npy` holds float16"),
    ("degree", np.zeros(3, dtype=np.float32), "degree.npy` holds"),
    ("y", np.zeros(4, dtype=np.int64), r"y.npy` holds int64 of shape \[4\], not float32 or float64 of shape \[4, 2\]"),
    ("y", np.zeros((4, 2), dtype=np.float32, order="F"), "y.npy` holds .* in C order"),
    ("train_mask", np.zeros(4, dtype=np.int8), "train_mask.npy` holds int8"),
    ("x_rowptr", np.array([0, 0, 0, 0, 9], dtype=np.int32), r"x_col.npy` holds int32 of shape \[4\]"),
    ("x_value", np.zeros(5, dtype=np.float32), "x_value.npy` holds"),
    ("node_ids", np.zeros(4), r"node_ids.npy` holds float64 of shape \[4\], not 4 integers or strings"),
    ("node_ids", np.array(["a"]), r"node_ids.npy` holds <U1 of shape \[1\]"),
    ("node_ids", np.array([{}] * 4, dtype=object), "node_ids.npy` cannot be read"),
]


@pytest.mark.parametrize(("name", "array", "message"), WRONG)
def test_a_wrong_array_is_named(name: str, array: np.ndarray, message: str, folder: Path) -> None:
    np.save(folder / f"{name}.npy", array, allow_pickle=True)
    with pytest.raises(GraphError, match=message) as error:
        load_folder(folder)
    assert "write the graph again with `lazygnn import`" in str(error.value)


def test_too_few_entries_for_the_self_loops(folder: Path) -> None:
    np.save(folder / "rowptr.npy", np.array([0, 1, 2, 3, 3], dtype=np.int32))
    np.save(folder / "col.npy", np.zeros(3, dtype=np.int32))
    np.save(folder / "value.npy", np.zeros(3, dtype=np.float32))
    with pytest.raises(GraphError, match=r"col.npy` has 3 entries for 4 nodes with self-loops"):
        load_folder(folder)


def test_a_missing_file_is_named(folder: Path, dense_folder: Path) -> None:
    for path in (folder, dense_folder):
        for file in sorted(path.glob("*.npy")):
            content = file.read_bytes()
            file.unlink()
            with pytest.raises(GraphError, match=rf"{file.name}` is missing; write the graph again"):
                load_folder(path)
            file.write_bytes(content)
    load_folder(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes")
def test_a_pipe_does_not_block(folder: Path) -> None:
    (folder / "col.npy").unlink()
    os.mkfifo(folder / "col.npy")
    with pytest.raises(GraphError, match=r"col.npy` is missing"):
        load_folder(folder)


def test_a_huge_length_is_not_allocated(folder: Path) -> None:
    with (folder / "col.npy").open("wb") as file:
        shape = (2**40,)
        np.lib.format.write_array_header_1_0(file, {"descr": "<i4", "fortran_order": False, "shape": shape})
    with pytest.raises(GraphError, match=r"col.npy` cannot be read") as raised:
        load_folder(folder)
    # the remedy is named once
    assert str(raised.value).count("write the graph again") == 1


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_corrupt_bytes_give_a_graph_error_or_a_consistent_graph(folder: Path, data: st.DataObject) -> None:
    """Changes bytes of headers and cuts files: a graph that loads has the right shapes."""
    file = data.draw(st.sampled_from(sorted(folder.iterdir())))
    content = file.read_bytes()
    changed = bytearray(content)
    head = len(content) if file.suffix == ".json" else 128
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, head - 1), st.integers(0, 255)), max_size=4)):
        changed[at] = byte
    stop = data.draw(st.one_of(st.none(), st.integers(0, len(content) - 1)))
    file.write_bytes(bytes(changed[:stop]))
    try:
        loaded = load_folder(folder)
    except GraphError:
        pass
    else:
        assert len(loaded.y) == len(loaded.x) == len(loaded.degree) == loaded.num_nodes
        assert len(loaded.adj.col) == len(loaded.adj.value)
    finally:
        file.write_bytes(content)


# `load_graph` with folders


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_load_graph_takes_the_path_of_a_folder(elsewhere: Path, path_graph: Graph) -> None:
    save_folder(path_graph, elsewhere / "sub" / "mine")
    assert_same(load_graph("sub/mine"), path_graph)
    assert_same(load_graph(elsewhere / "sub" / "mine"), path_graph)


def test_load_graph_finds_a_folder_by_name(elsewhere: Path, path_graph: Graph, block_arrays: dict[str, Any]) -> None:
    for name in ("mine", "cora", "wordnet-small"):
        save_folder(path_graph, elsewhere / "root" / name)
        assert_same(load_graph(name, root=elsewhere / "root"), path_graph)
    np.savez(elsewhere / "root" / "mine.npz", **block_arrays)
    assert load_graph("mine", root=elsewhere / "root").num_nodes == 60


def test_load_graph_refuses_a_folder_without_a_graph(elsewhere: Path) -> None:
    (elsewhere / "sub").mkdir()
    with pytest.raises(
        GraphError, match=r"folder `sub` has no `graph.json`; give a folder that `lazygnn import`, `lazy"
    ):
        load_graph("sub")


def test_the_schema_of_tables_is_stored(tmp_path: Path) -> None:
    nodes = {"id": ["é", "b"], "size": [1, None], "label": ["x", "y"]}
    graph = Graph.from_tables(nodes, {"source": ["é"], "target": ["b"]}, structural=True)
    save_folder(graph, tmp_path / "graph")
    loaded = load_folder(tmp_path / "graph")
    assert_same(loaded, graph)
    assert loaded.schema == graph.schema
    header = json.loads((tmp_path / "graph" / "graph.json").read_text())
    assert header["schema"]["columns"][0]["name"] == "size"
    header["schema"]["structural"] = None
    (tmp_path / "graph" / "graph.json").write_text(json.dumps(header))
    with pytest.raises(GraphError, match=r"graph.json`: the schema describes 2 features, but there are 35; import the"):
        load_folder(tmp_path / "graph")
    header["schema"]["columns"][0]["scale"] = 0
    (tmp_path / "graph" / "graph.json").write_text(json.dumps(header))
    with pytest.raises(GraphError, match=r"graph.json`: `schema.columns.0.number.scale` is '0'"):
        load_folder(tmp_path / "graph")


def test_a_graph_without_a_schema_is_written_as_before(path_graph: Graph, tmp_path: Path) -> None:
    save_folder(path_graph, tmp_path / "graph")
    header = json.loads((tmp_path / "graph" / "graph.json").read_text())
    assert not header.keys() & {"schema", "part_engine"}


def test_entries_are_read_without_the_rest(block_graph: Graph, tmp_path: Path) -> None:
    save_folder(block_graph, tmp_path / "graph")
    assert isinstance(block_graph.x, Tensor)
    assert np.array_equal(read_entries(tmp_path / "graph", "x", 7, 11), block_graph.x[7:11].numpy())
    assert np.array_equal(read_entries(tmp_path / "graph", "col", 3, 90), block_graph.adj.col[3:90].numpy())
    with pytest.raises(GraphError, match=r"entries 50 to 70 of `.*y\.npy` cannot be read"):
        read_entries(tmp_path / "graph", "y", 50, 70)
    with pytest.raises(GraphError, match="node_ids"):
        read_entries(tmp_path / "graph", "node_ids", 0, 1)
