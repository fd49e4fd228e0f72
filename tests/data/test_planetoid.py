import functools
import io
import os
import pickle
import subprocess
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from lazygnn.data.planetoid import read_planetoid
from lazygnn.errors import GraphError
from lazygnn.ops import Csr

# Seven nodes, four of them in `allx`. The test index is not sorted, and node 5 of the test range is missing in it.
ALLX = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 2], [3, 0, 1]])
TX = np.array([[0, 7, 0], [5, 0, 5]])
ALLY = np.eye(2)[[0, 1, 1, 0]]
TY = np.eye(2)[[1, 0]]
TEST = (6, 4)
NEIGHBORS = {0: [1, 2], 1: [0], 2: [0, 3], 3: [2, 6], 4: [4], 5: [], 6: [3, 3]}


class _Python2Pickler(pickle._Pickler):
    """Writes bytes as the `str` of Python 2, as in the original files."""

    def save(self, obj: object, save_persistent_id: bool = True) -> None:
        if isinstance(obj, bytes):
            self.write(pickle.BINSTRING + len(obj).to_bytes(4, "little") + obj)  # type: ignore[attr-defined]
        else:
            super().save(obj, save_persistent_id)  # type: ignore[misc]


def python2_pickle(content: object) -> bytes:
    file = io.BytesIO()
    _Python2Pickler(file, protocol=2).dump(content)
    # the modules had other names then
    data = file.getvalue().replace(b"cscipy.sparse._csr\n", b"cscipy.sparse.csr\n")
    return data.replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def contents(**changes: object) -> dict[str, object]:
    graph = defaultdict(list, NEIGHBORS)
    sparse = {part: scipy.sparse.csr_matrix(x.astype(np.float32)) for part, x in (("allx", ALLX), ("tx", TX))}
    first = scipy.sparse.csr_matrix(ALLX[:2].astype(np.float32))
    return {**sparse, "x": first, "y": ALLY[:2], "ally": ALLY, "ty": TY, "graph": graph} | changes


def write(folder: Path, dump: Callable[[object], bytes] = python2_pickle, **changes: Any) -> Path:
    for part, content in contents(**changes).items():
        (folder / f"ind.tiny.{part}").write_bytes(content if isinstance(content, bytes) else dump(content))
    (folder / "ind.tiny.test.index").write_text("".join(f"{node}\n" for node in TEST))
    return folder


def csr(x: np.ndarray, **fields: object) -> object:
    matrix = scipy.sparse.csr_matrix(x)
    for field, value in fields.items():
        setattr(matrix, field, value)
    return matrix


@pytest.mark.parametrize(
    "dump",
    [
        python2_pickle,
        functools.partial(pickle.dumps, protocol=2),
        functools.partial(pickle.dumps, protocol=4),
    ],
    ids=["python2", "protocol2", "protocol4"],
)
def test_all_fields_are_read(tmp_path: Path, dump: Callable[[object], bytes]) -> None:
    graph = read_planetoid(write(tmp_path, dump), "tiny")

    assert isinstance(graph.x, Csr)
    expected = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 2], [3, 0, 1], [5, 0, 5], [0, 0, 0], [0, 7, 0]])
    assert torch.equal(graph.x.to_dense(), expected.float())
    assert graph.y.tolist() == [0, 1, 1, 0, 0, -1, 1]
    assert graph.task.num_outputs == 2
    assert graph.name == "tiny"
    pairs = set(zip(graph.adj.row_index().tolist(), graph.adj.col.tolist(), strict=True))
    edges = {(0, 1), (0, 2), (2, 3), (3, 6)}
    assert pairs == edges | {(j, i) for i, j in edges} | {(i, i) for i in range(7)}


def test_split_is_the_public_one_and_leaves_out_the_isolated_test_node(tmp_path: Path) -> None:
    masks = read_planetoid(write(tmp_path), "tiny").masks
    assert {split: mask.nonzero()[:, 0].tolist() for split, mask in masks.items()} == {
        "train": [0, 1],
        "val": [2, 3],
        "test": [4, 6],
    }


def test_validation_takes_500_nodes(tmp_path: Path) -> None:
    label = np.eye(2)[np.arange(600) % 2]
    write(tmp_path, allx=csr(np.eye(600, 3)), ally=label, graph={0: [1]})
    (tmp_path / "ind.tiny.test.index").write_text("601 600")
    graph = read_planetoid(tmp_path, "tiny")
    assert graph.masks["val"].nonzero()[:, 0].tolist() == list(range(2, 502))
    assert graph.y[600:].tolist() == [0, 1]


def test_node_without_a_class_is_in_no_split(tmp_path: Path) -> None:
    ally = ALLY.copy()
    ally[3] = 0
    graph = read_planetoid(write(tmp_path, ally=ally), "tiny")
    assert graph.y[3] == -1
    assert graph.masks["val"].nonzero()[:, 0].tolist() == [2]


def test_files_may_be_in_a_folder_raw(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    write(tmp_path / "raw")
    assert read_planetoid(tmp_path, "tiny").num_nodes == 7


def test_arrays_of_other_byte_order_and_layout_are_read(tmp_path: Path) -> None:
    ally = np.asfortranarray(ALLY.astype(">i4"))
    assert read_planetoid(write(tmp_path, ally=ally), "tiny").y[:4].tolist() == [0, 1, 1, 0]


class _Calls:
    """Pickles as a call of a function."""

    def __init__(self, function: Callable[..., Any], *args: object, state: object = None) -> None:
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced


def hostile(marker: Path) -> dict[str, Any]:
    touch = f"touch {marker}"
    code = f"open({str(marker)!r}, 'w').close()"
    return {
        "posix.system": _Calls(os.system, touch),
        "subprocess.Popen": _Calls(subprocess.Popen, ["touch", str(marker)]),
        "eval": _Calls(eval, code),
        "exec": _Calls(exec, code),
        "getattr": _Calls(getattr, _Calls(__import__, "os"), "system"),
        "functools.partial": _Calls(functools.partial, os.system, touch),
        "scipy.sparse._csr.csr_array": scipy.sparse.csr_array(ALLX),
        "numpy.matrix": ALLY.view(np.matrix),
        "collections.OrderedDict": OrderedDict(),
    }


HOSTILE_NAMES = list(hostile(Path("marker")))


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("part", ["allx", "ty", "graph"])
def test_pickle_that_names_anything_else_is_refused_and_not_run(tmp_path: Path, part: str, name: str) -> None:
    marker = tmp_path / "marker"
    write(tmp_path, **{part: hostile(marker)[name]})
    with pytest.raises(GraphError, match=rf"ind\.tiny\.{part}` refers to `.*; nothing was run") as caught:
        read_planetoid(tmp_path, "tiny")
    assert name.rpartition(".")[2] in str(caught.value) or name in ("eval", "exec", "getattr")
    assert not marker.exists()


def test_hostile_pickles_would_run_in_the_standard_unpickler(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    pickle.loads(python2_pickle(hostile(marker)["posix.system"]))
    assert marker.exists()


@pytest.mark.parametrize(
    "pickled",
    [
        # defaultdict with a factory other than list
        b"\x80\x02ccollections\ndefaultdict\ncnumpy\ndtype\n\x85R.",
        b"\x80\x02ccollections\ndefaultdict\ncnumpy.core.multiarray\n_reconstruct\n\x85R.",
        # calls of names that only serve as arguments
        b"\x80\x02c__builtin__\nlist\n)R.",
        b"\x80\x02cnumpy\nndarray\n)R.",
        # an array of a class other than ndarray
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nc__builtin__\nlist\nK\x00\x85U\x01b\x87R.",
        # state for the records themselves: it must not change them for the next file
        b"\x80\x02cnumpy\ndtype\n}U\x04codeU\x02f8sb.",
        b"\x80\x02cnumpy\ndtype\nN}U\x08to_numpyU\x02f8s\x86b.",
        b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n}U\x05stateK\x01sb.",
        b"\x80\x02c__builtin__\nlist\n}U\x05stateK\x01sb.",
        b"\x80\x02c_codecs\nencode\n}U\x05stateK\x01sb.",
        b"\x80\x02ccollections\ndefaultdict\n)R}U\x05stateK\x01sb.",
        # other encodings
        b"\x80\x02c_codecs\nencode\nU\x01aU\x05rot13\x86R.",
        # a persistent reference, and an extension code that is not registered
        b"\x80\x02Pname\n.",
        b"\x80\x02\x82\x01.",
        # an allocation of two billion objects
        b"\x80\x02]r\xff\xff\xff\x7f.",
    ],
)
def test_tricks_with_the_known_names_are_refused(tmp_path: Path, pickled: Any) -> None:
    for part in ("allx", "ally", "graph"):
        write(tmp_path, **{part: pickled})
        with pytest.raises(GraphError, match=rf"(?s)ind\.tiny\.{part}` cannot be read .*download it again"):
            read_planetoid(tmp_path, "tiny")
    assert read_planetoid(write(tmp_path), "tiny").num_nodes == 7


@pytest.mark.parametrize("array", [np.array([[1, 0], [None, 1]]), np.array([["a", "b"]]), np.zeros((4, 2), complex)])
def test_arrays_of_anything_but_numbers_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    write(tmp_path, ally=array)
    with pytest.raises(GraphError, match=r"ind\.tiny\.ally` .*array of type .*in place of plain numbers"):
        read_planetoid(tmp_path, "tiny")


@pytest.mark.parametrize("part", ["x", "tx", "allx", "y", "ty", "ally", "graph"])
@pytest.mark.parametrize("change", ["empty", "cut", "garbage", "text"])
def test_corrupt_file_is_named(tmp_path: Path, part: str, change: str) -> None:
    path = write(tmp_path) / f"ind.tiny.{part}"
    whole = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "cut": whole[: len(whole) // 2], "garbage": bytes(range(256)), "text": b"<!DOCTYPE html>"}[
            change
        ]
    )
    with pytest.raises(GraphError, match=rf"ind\.tiny\.{part}` cannot be read"):
        read_planetoid(tmp_path, "tiny")


def test_no_way_of_cutting_a_file_gives_another_error(tmp_path: Path) -> None:
    path = write(tmp_path) / "ind.tiny.tx"
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(GraphError, match=r"ind\.tiny\.tx"):
            read_planetoid(tmp_path, "tiny")


def test_changed_bytes_give_a_graph_or_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path) / "ind.tiny.allx"
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(500):
        changed = bytearray(whole)
        # past the first opcodes, or every change gives an unknown name
        changed[rng.integers(30, len(whole))] = rng.integers(256)
        path.write_bytes(changed)
        try:
            read_planetoid(tmp_path, "tiny")
        except GraphError as error:
            assert "ind.tiny." in str(error)  # noqa: PT017


@pytest.mark.parametrize("part", ["x", "graph", "test.index"])
def test_missing_file_is_named(tmp_path: Path, part: str) -> None:
    (write(tmp_path) / f"ind.tiny.{part}").unlink()
    with pytest.raises(GraphError, match=rf"ind\.tiny\.{part}` is missing; put the file there or download"):
        read_planetoid(tmp_path, "tiny")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"allx": ALLX}, "allx` .*in place of a sparse matrix"),
        ({"ally": csr(ALLY)}, "ally` .*in place of an array"),
        ({"ally": ALLY[:, 0]}, r"ally` .*labels of shape \(4,\)"),
        ({"ally": ALLY * 2}, r"ally` .*row 0 is \[2.0, 0.0\]"),
        ({"ty": np.ones((2, 2))}, r"ty` .*row 0 is \[1.0, 1.0\]"),
        ({"ty": np.full((2, 2), np.nan)}, r"ty` .*row 0 is \[nan, nan\]"),
        ({"x": csr(ALLX[:1])}, r"x` has 1 rows, but `.*y` has 2; take both"),
        ({"allx": csr(ALLX[:3])}, r"allx` has 3 rows, but `.*ally` has 4"),
        ({"tx": csr(TX[:1])}, r"tx` has 1 rows, but `.*ty` has 2"),
        ({"tx": csr(TX[[0, 1, 1]]), "ty": TY[[0, 1, 1]]}, r"tx` has 3 rows, but `.*test.index` has 2"),
        ({"tx": csr(TX[:, :2])}, r"tx` has 2 columns, but `.*allx` has 3"),
        ({"ty": np.eye(3)[:2]}, r"ty` has 3 classes, but `.*ally` has 2"),
        ({"x": csr(np.ones((5, 3))), "y": np.eye(2)[[0] * 5]}, r"y` has 5 rows, more than the 4 of `.*ally`"),
        ({"tx": csr(TX, indices=np.array([1, 0, 9]))}, "tx` .*column 9 in a matrix of 3 columns"),
        ({"tx": csr(TX, indices=np.array([1, -1, 2]))}, "tx` .*column -1 in a matrix of 3 columns"),
        ({"tx": csr(TX, indices=np.array([1.0, 0, 2]))}, "tx` .*indices of type float64"),
        ({"tx": csr(TX, indptr=np.array([0, 4, 3]))}, "tx` .*row pointers that do not rise from 0 to 3"),
        ({"tx": csr(TX, indptr=np.array([0, 3]))}, r"tx` .*2 rows with \(2,\) pointers"),
        ({"tx": csr(TX, _shape=(2.0, 3))}, r"tx` .*shape \(2.0, 3\)"),
        ({"tx": csr(np.full((2, 3), np.inf))}, "tx` .*a feature that is not finite"),
        ({"graph": [[1], [0]]}, "graph` .*`list` in place of a dictionary of neighbors"),
        ({"graph": {0: 1}}, "graph` .*the neighbors of node 0 are a `int`, not a list"),
        ({"graph": {0: [7]}}, "graph` .*node 7 in a graph of 7 nodes"),
        ({"graph": {-1: [0]}}, "graph` .*node -1 in a graph of 7 nodes"),
        ({"graph": {0: ["1"]}}, "graph` .*node '1' in a graph of 7 nodes"),
        ({"graph": {0: [1.5]}}, "graph` .*node 1.5 in a graph of 7 nodes"),
        ({"graph": {0: [2**80]}}, "graph` .*node 1208925819614629174706176 in a graph"),
    ],
)
def test_inconsistent_content_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write(tmp_path, **changes)
    with pytest.raises(GraphError, match=message):
        read_planetoid(tmp_path, "tiny")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; download it again"),
        ("4\nsix\n", "is not a list of node indices: .*'six'"),
        ("4\n6.0\n", "is not a list of node indices"),
        ("4\n99999999999999999999\n", "is not a list of node indices"),
        ("4\n\xe9\n", "is not a list of node indices"),
        ("3\n4\n", "names node 3; 2 test nodes after 4 others go from 4 to at most 7"),
        ("4\n8\n", "names node 8; 2 test nodes after 4 others"),
        ("4\n4\n", "names node 4 twice"),
    ],
)
def test_bad_test_index_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (write(tmp_path) / "ind.tiny.test.index").write_text(text, encoding="utf-8")
    with pytest.raises(GraphError, match=rf"ind\.tiny\.test\.index` {message}"):
        read_planetoid(tmp_path, "tiny")
