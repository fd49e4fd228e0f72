import io
import pickle
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from torch import Tensor

from lazygnn.data import load_graph
from lazygnn.data.npz import read_npz, write_npz
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from lazygnn.ops import Csr

Arrays = dict[str, np.ndarray]


def dense_arrays() -> Arrays:
    return {
        "edge_index": np.array([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], dtype=np.int32),
        "x": np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0], [0.5, 0, 0]], dtype=np.float16),
        "y": np.array([0, 1, 0, -1]),
        "train_mask": np.array([True, False, False, False]),
        "val_mask": np.array([False, True, False, False]),
        "test_mask": np.array([False, False, True, False]),
    }


def sparse_arrays() -> Arrays:
    arrays = dense_arrays()
    del arrays["x"]
    return arrays | {
        "x_indptr": np.array([0, 2, 2, 3, 4]),
        "x_indices": np.array([0, 2, 1, 0], dtype=np.int32),
        "x_data": np.array([1, 2, 3, 0.5], dtype=np.float16),
        "x_shape": np.array([4, 3]),
    }


def optional_arrays() -> Arrays:
    return dense_arrays() | {
        "edge_weight": np.array([1, 1, 2, 2, 3, 3.0]),
        "node_ids": np.array(["a", "b", "c", "d"]),
        "class_name": np.array(["cat", "dog", "cow"]),
        "task": np.array("single-label"),
        "source": np.array("somewhere"),
    }


def write(folder: Path, arrays: Arrays) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def dense_x(graph: Graph) -> Tensor:
    return graph.x.to_dense() if isinstance(graph.x, Csr) else graph.x


def test_dense_and_sparse_features_give_the_same_graph(tmp_path: Path) -> None:
    dense, sparse = (read_npz(write(tmp_path, arrays)) for arrays in (dense_arrays(), sparse_arrays()))
    assert isinstance(dense.x, Tensor)
    assert isinstance(sparse.x, Csr)
    assert dense.x.tolist() == dense_arrays()["x"].tolist()
    assert torch.equal(dense_x(sparse), dense.x)
    assert torch.equal(dense.adj.to_dense(), sparse.adj.to_dense())
    for graph in (dense, sparse):
        assert graph.y.tolist() == [0, 1, 0, -1]
        masks = {split: mask.nonzero()[:, 0].tolist() for split, mask in graph.masks.items()}
        assert masks == {"train": [0], "val": [1], "test": [2]}
        assert (graph.num_edges, graph.in_channels, graph.task.num_outputs, graph.name) == (3, 3, 2, "mine")


def test_optional_fields_are_read(tmp_path: Path) -> None:
    graph = read_npz(write(tmp_path, optional_arrays()))
    assert graph.class_names == ("cat", "dog", "cow")
    assert graph.task.num_outputs == 3
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["a", "b", "c", "d"]
    assert graph.degree.tolist() == [2, 4, 6, 4]


def test_edges_may_hold_the_ids_of_nodes(tmp_path: Path) -> None:
    ids = np.array(["d", "c", "b", "a"])
    arrays = dense_arrays()
    arrays |= {"edge_index": ids[arrays["edge_index"]], "node_ids": ids}
    graph = read_npz(write(tmp_path, arrays))
    plain = read_npz(write(tmp_path, dense_arrays()))
    assert torch.equal(graph.adj.to_dense(), plain.adj.to_dense())


def test_the_task_can_be_stored(tmp_path: Path) -> None:
    arrays = dense_arrays() | {"y": np.array([0.0, 1.0, 1.0, -1.0]), "task": np.array("multi-label")}
    assert read_npz(write(tmp_path, arrays)).task.kind == "multi-label"


def test_classes_without_names_have_none_in_the_file(tmp_path: Path, block_graph: Graph) -> None:
    write_npz(block_graph, tmp_path / "a.npz")
    assert block_graph.class_names is None
    assert read_npz(tmp_path / "a.npz").class_names is None
    # a class that no label has needs a name to be counted
    more = replace(block_graph, task=replace(block_graph.task, num_outputs=5))
    write_npz(more, tmp_path / "b.npz")
    assert read_npz(tmp_path / "b.npz").task.num_outputs == 5
    assert read_npz(tmp_path / "b.npz").class_names == ("0", "1", "2", "3", "4")


def test_a_graph_without_labels_is_read(tmp_path: Path) -> None:
    graph = read_npz(write(tmp_path, {name: dense_arrays()[name] for name in ("edge_index", "x")}))
    assert not graph.masks
    assert graph.y.tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("edge_index", r"field `edge_index` is missing; store the edges as integers, \[2, num_edges\]"),
        ("y", r"field `y` is missing, but `train_mask` is there; store labels and masks together, or neither"),
        ("train_mask", r"field `train_mask` is missing, but `y` is there; store labels and masks together, or neither"),
        ("x_indptr", r"field `x_indptr` is missing; store features as `x`, or sparse as x_indptr, x_indices, x_data"),
        ("x_indices", r"field `x_indices` is missing"),
        ("x_data", r"field `x_data` is missing"),
        ("x_shape", r"field `x_shape` is missing"),
    ],
)
def test_a_missing_field_is_named_with_the_file(tmp_path: Path, missing: str, message: str) -> None:
    arrays = sparse_arrays()
    del arrays[missing]
    path = write(tmp_path, arrays)
    with pytest.raises(GraphError, match=message) as error:
        read_npz(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_file_without_features_is_told_of_other_ways(tmp_path: Path) -> None:
    arrays = dense_arrays()
    del arrays["x"]
    with pytest.raises(
        GraphError, match=r"field `x` is missing; .*`lazygnn import --structural` makes some of the edg"
    ):
        read_npz(write(tmp_path, arrays))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_indptr": np.array([0, 2, 2, 3])}, r"field `x_indptr` has 4 entries; 4 rows need 5"),
        (
            {"x_indptr": np.array([0, 2, 1, 3, 4])},
            r"the row pointers of sparse `x` do not match its entries; they must",
        ),
        ({"x_indptr": np.array([1, 2, 2, 3, 4])}, r"the row pointers of sparse `x` do not match"),
        ({"x_indptr": np.array([0, 2, 2, 3, 3])}, r"the row pointers of sparse `x` do not match"),
        ({"x_indptr": np.array([0, 2, 2, 3, 5])}, r"field `x_indptr` holds 5; its entries go from 0 to 4"),
        ({"x_indptr": np.array([0, -1, 2, 3, 4])}, r"field `x_indptr` holds -1; its entries go from 0 to 4"),
        # would be 2 in 32 bits
        ({"x_indptr": np.array([0, 2**32 + 2, 2, 3, 4])}, r"field `x_indptr` holds 4294967298; its entries go from"),
        ({"x_indptr": np.array([[0, 2, 2, 3, 4]])}, r"field `x_indptr` has shape \(1, 5\) and type int64; give a flat"),
        ({"x_indptr": np.array([0, 2, 2, 3, 4.0])}, r"field `x_indptr` has shape \(5,\) and type float64; give a flat"),
        ({"x_indptr": np.array(["0"] * 5)}, r"field `x_indptr` has shape \(5,\) and type <U1; give a flat array"),
        ({"x_indices": np.array([0, 2, 1, 3])}, r"field `x_indices` holds 3; its entries go from 0 to 2"),
        ({"x_indices": np.array([0, 2, -1, 0])}, r"field `x_indices` holds -1; its entries go from 0 to 2"),
        ({"x_indices": np.array([0, 2, 1, -(2**63)])}, r"field `x_indices` holds -9223372036854775808; its entries"),
        ({"x_indices": np.array([0, 2, 1])}, r"the row pointers of sparse `x` do not match"),
        ({"x_data": np.ones(3)}, r"field `x_indptr` holds 4; its entries go from 0 to 3"),
        (
            {"x_data": np.array(["1"] * 4)},
            r"field `x_data` has shape \(4,\) and type <U1; give a flat array",
        ),
        ({"x_data": np.array([1, np.nan, 1, 1])}, r"`x` holds nan in column \d \(1 such values\)"),
        ({"x_shape": np.array([4, 0])}, r"field `x_shape` is \[4, 0\]; give two positive integers, rows and columns"),
        ({"x_shape": np.array([4, 3.0])}, r"field `x_shape` is \[4.0, 3.0\]; give two positive integers"),
        ({"x_shape": np.array([4])}, r"field `x_shape` is \[4\]; give two positive integers"),
        ({"x_shape": np.array(4)}, r"field `x_shape` is 4; give two positive integers"),
        ({"x_shape": np.array([4, 2**31])}, r"field `x_shape` is \[4, 2147483648\]; at most 2\^31 - 1 columns"),
        ({"class_name": np.array("cat")}, r"field `class_name` has shape \(\); give one name per class"),
        ({"class_name": np.array(["cat"])}, r"`y` holds label 1; labels go from 0 to 0"),
        ({"task": np.array(["a", "b"])}, r"`task` is `\['a' 'b'\]`; choose one of: auto"),
        ({"edge_index": np.array([[0], [9]])}, r"`edge_index` holds 9, but `x` has 4 rows"),
    ],
)
def test_wrong_fields_are_refused_with_the_name_of_the_file(tmp_path: Path, changes: Arrays, message: str) -> None:
    path = write(tmp_path, sparse_arrays() | changes)
    with pytest.raises(GraphError, match=message) as error:
        read_npz(path)
    assert str(error.value).startswith(f"{path}: ")


def test_class_names_must_fit_several_labels(tmp_path: Path) -> None:
    arrays = dense_arrays() | {"y": np.eye(4, 2, dtype=np.int64), "class_name": np.array(["a", "b", "c"])}
    with pytest.raises(GraphError, match=r"`class_names` has 3 names for 2 classes; give one name per class"):
        read_npz(write(tmp_path, arrays))


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, dense_arrays())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(GraphError, match=r"mine.npz: not an .npz file \(.* truncated\); write it again"):
        read_npz(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", pickle.dumps([1])])
def test_a_file_that_is_not_an_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    with pytest.raises(GraphError, match=r"mine.npz: not an .npz file \(not a zip archive") as error:
        read_npz(path)
    assert not any(word in str(error.value) for word in ("pickle", "trust"))


def test_an_archive_after_other_bytes_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, dense_arrays())
    path.write_bytes(b"hello" + path.read_bytes())
    assert zipfile.is_zipfile(path)
    with pytest.raises(GraphError, match=r"mine.npz: not an .npz file"):
        read_npz(path)


def test_a_corrupt_archive_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, dense_arrays())
    path.write_bytes(path.read_bytes().replace(b"NUMPY\x01", b"NUMPY\x09"))
    with pytest.raises(GraphError, match=r"mine.npz: not a readable .npz file \(.*\); write it again"):
        read_npz(path)


def test_a_single_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(GraphError, match=r"mine.npz: this is a single array; store several named arrays with"):
        read_npz(path)


def test_a_member_that_is_not_an_array_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {name: array for name, array in sparse_arrays().items() if name != "x_shape"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x_shape.npy", b"4 times 3")
    with pytest.raises(GraphError, match=r"mine.npz: field `x_shape` is not an array; store arrays with `numpy.savez`"):
        read_npz(path)


class _Marker:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("field", ["y", "node_ids"])
def test_a_pickled_array_is_refused_and_runs_no_code(tmp_path: Path, field: str) -> None:
    marker = tmp_path / "ran"
    poison = np.empty(1, dtype=object)
    poison[0] = _Marker(marker)
    # the standard unpickler runs it
    pickle.loads(pickle.dumps(poison[0]))
    assert marker.exists()
    marker.unlink()
    path = write(tmp_path, dense_arrays() | {field: poison})
    with pytest.raises(GraphError, match=r"mine.npz: an array holds Python objects, which are never read") as error:
        read_npz(path)
    assert not marker.exists()
    # numpy's advice is neither in the message nor in the traceback
    assert not any(word in str(error.value) for word in ("allow_pickle", "trust"))
    assert error.value.__suppress_context__


def test_an_overlong_header_is_refused_without_advice(tmp_path: Path) -> None:
    columns = np.zeros(4, dtype=[(f"column{i}", "f4") for i in range(1000)])
    with pytest.raises(GraphError, match=r"mine.npz: an array holds too many named columns, which are never") as error:
        read_npz(write(tmp_path, dense_arrays() | {"y": columns}))
    assert not any(word in str(error.value) for word in ("allow_pickle", "trust"))


SCRATCH = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
BASES = st.sampled_from([dense_arrays, sparse_arrays, optional_arrays])
NUMBERS = ("bool", "int8", "uint8", "int32", "int64", "uint64", ">i4", "float16", "float64", ">f8", "longdouble")
DTYPES = st.sampled_from((*NUMBERS, "complex64", "U2", "S2", ">U1", "M8[s]", "object"))
EXTREMES = [0, 1, -1, 2, 3, 4, 2**31, -(2**31), 2**32 + 1, 2**63 - 1, -(2**63), np.nan, np.inf, -np.inf, 1e300]


@st.composite
def broken_graphs(draw: st.DrawFn) -> Arrays:
    arrays: Arrays = draw(BASES)()
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(arrays)))
        array = arrays[name]
        change = draw(st.sampled_from(["drop", "dtype", "shape", "value", "other"]))
        if change == "drop":
            del arrays[name]
        elif change == "dtype":
            arrays[name] = _cast(array, draw(DTYPES))
        elif change == "shape":
            shape = draw(st.lists(st.integers(0, 5), max_size=3))
            arrays[name] = np.resize(array, shape) if array.size else np.zeros(shape)
        elif change == "value" and array.size and array.dtype.kind in "biuf":
            flat = array.astype(np.float64 if draw(st.booleans()) else array.dtype).flatten()
            with np.errstate(all="ignore"):
                flat[draw(st.integers(0, flat.size - 1))] = np.array(draw(st.sampled_from(EXTREMES))).astype(flat.dtype)
            arrays[name] = flat.reshape(array.shape)
        else:
            shapes = st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)
            kinds = st.one_of(st_numpy.scalar_dtypes(), st_numpy.unicode_string_dtypes(), st_numpy.byte_string_dtypes())
            arrays[name] = draw(st_numpy.arrays(kinds, shapes))
    return arrays


def _cast(array: np.ndarray, dtype: str) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return array.astype(dtype)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            return np.zeros(array.shape, dtype=dtype)


def load_or_refuse(path: Path) -> None:
    """Loads a consistent graph or raises a `GraphError`; anything else is a bug."""
    try:
        graph = load_graph(path)
    except GraphError:
        return
    assert len(graph.x) == len(graph.y) == graph.num_nodes == len(graph.adj)
    assert graph.adj.value.isfinite().all()
    values = graph.x.value if isinstance(graph.x, Csr) else graph.x
    assert values.isfinite().all()
    labeled = graph.task.labeled(graph.y)
    assert all(labeled[mask].all() for mask in graph.masks.values())
    assert graph.task.num_outputs >= 1


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("npz")


@SCRATCH
@given(arrays=broken_graphs())
def test_broken_arrays_give_a_graph_or_a_graph_error(scratch: Path, arrays: Arrays) -> None:
    load_or_refuse(write(scratch, arrays))


@SCRATCH
@given(base=BASES, packed=st.booleans(), data=st.data())
def test_broken_bytes_give_a_graph_or_a_graph_error(
    scratch: Path, base: Any, packed: bool, data: st.DataObject
) -> None:
    buffer = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(buffer, **base())
    content = bytearray(buffer.getvalue())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))))
    path = scratch / "bytes.npz"
    path.write_bytes(content[:end])
    load_or_refuse(path)


def test_the_schema_of_tables_is_stored(tmp_path: Path) -> None:
    nodes = {"id": ["é", "b"], "size": [1, None], "label": ["x", "y"]}
    graph = Graph.from_tables(nodes, {"source": ["é"], "target": ["b"]})
    write_npz(graph, tmp_path / "graph.npz")
    loaded = read_npz(tmp_path / "graph.npz")
    assert loaded.schema == graph.schema
    assert loaded.class_names == graph.class_names == ("x", "y")
    assert torch.equal(dense_x(loaded), dense_x(graph))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (np.array(["a", "b"]), r"field `schema` has shape \(2,\) and type <U1; give one string of JSON"),
        (np.array("{}"), r"field `schema`: `id` of the schema is"),
        (
            np.array('{"id": "id", "source": "a", "destination": "b"}'),
            r"field `schema`: the schema describes 0 features, but there are 3; import the tables again",
        ),
    ],
)
def test_a_wrong_schema_is_refused(tmp_path: Path, schema: np.ndarray, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        read_npz(write(tmp_path, dense_arrays() | {"schema": schema}))


@pytest.mark.parametrize("arrays", [dense_arrays, sparse_arrays, optional_arrays])
def test_what_was_read_is_written_again(tmp_path: Path, arrays: Any) -> None:
    graph = read_npz(write(tmp_path, arrays()))
    write_npz(graph, tmp_path / "again.npz")
    again = read_npz(tmp_path / "again.npz")
    assert torch.equal(dense_x(again), dense_x(graph))
    assert type(again.x) is type(graph.x)
    torch.testing.assert_close(again.adj.to_dense(), graph.adj.to_dense())
    assert (again.y.tolist(), again.task) == (graph.y.tolist(), graph.task)


def test_labels_without_training_nodes_are_not_written(tmp_path: Path, path_graph: Graph) -> None:
    with pytest.raises(GraphError, match=r"graph `path` has labels but no training nodes; save it as a folder instead"):
        write_npz(replace(path_graph, masks={}), tmp_path / "graph.npz")
    with pytest.raises(GraphError, match=r"could not write `.*`: .*; free the space or choose another file"):
        write_npz(path_graph, tmp_path)
