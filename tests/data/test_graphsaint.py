import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from lazygnn.data.graphsaint import read_saint
from lazygnn.errors import GraphError

# five nodes, the last without a role
EDGES = ((0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3))
FEATURES = np.arange(10.0).reshape(5, 2) / 3
CLASSES = {"0": 2, "1": 0, "2": 1, "3": 0, "4": 1}
LABELS = {"0": [0, 1, 1], "1": [1, 0, 0], "2": [0, 0, 0], "3": [1, 1, 1], "4": [0, 1, 0]}
ROLES = {"tr": [0, 1], "va": [2], "te": [3]}


def adjacency() -> Any:
    row, col = np.array(EDGES).T
    return scipy.sparse.csr_matrix((np.ones(len(row), dtype=bool), (row, col)), shape=(5, 5))


def write(folder: Path, *, feats: Any = FEATURES, class_map: Any = CLASSES, role: Any = ROLES, **arrays: Any) -> Path:
    scipy.sparse.save_npz(folder / "adj_full.npz", adjacency())
    if arrays:
        with np.load(folder / "adj_full.npz") as archive:
            changed = {**archive, **arrays}
        np.savez(folder / "adj_full.npz", **{key: array for key, array in changed.items() if array is not None})
    np.save(folder / "feats.npy", feats)
    for name, content in (("class_map", class_map), ("role", role)):
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text)
    return folder


def test_one_class_per_node(tmp_path: Path) -> None:
    graph = read_saint(write(tmp_path), "tiny")
    assert graph.task.kind == "single-label"
    assert graph.y.tolist() == [2, 0, 1, 0, 1]
    assert torch.equal(torch.as_tensor(graph.x), torch.tensor(FEATURES, dtype=torch.float32))
    assert {split: mask.nonzero()[:, 0].tolist() for split, mask in graph.masks.items()} == {
        "train": [0, 1],
        "val": [2],
        "test": [3],
    }
    pairs = set(zip(graph.adj.row_index().tolist(), graph.adj.col.tolist(), strict=True))
    assert pairs == {*EDGES, *((i, i) for i in range(5))}
    assert graph.name == "tiny"


def test_several_labels_per_node(tmp_path: Path) -> None:
    graph = read_saint(write(tmp_path, class_map=LABELS), "tiny")
    assert graph.task.kind == "multi-label"
    assert graph.y.tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0]]


def test_many_rows_of_labels_keep_their_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazygnn.data.graphsaint._ROWS_AT_ONCE", 2)
    shuffled = {node: LABELS[node] for node in "42031"}
    graph = read_saint(write(tmp_path, class_map=shuffled), "tiny")
    assert graph.y.tolist() == [LABELS[node] for node in "01234"]


@pytest.mark.parametrize("labels", [CLASSES, LABELS])
def test_node_without_an_entry_has_no_label(tmp_path: Path, labels: dict[str, Any]) -> None:
    graph = read_saint(write(tmp_path, class_map={node: labels[node] for node in "0123"}), "tiny")
    assert not graph.task.labeled(graph.y)[4]
    assert graph.task.labeled(graph.y)[:4].all()


def test_files_may_be_in_a_folder_raw(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    write(tmp_path / "raw")
    assert read_saint(tmp_path, "tiny").num_nodes == 5


def test_integer_features_are_read(tmp_path: Path) -> None:
    graph = read_saint(write(tmp_path, feats=np.asfortranarray(np.arange(10).reshape(5, 2))), "tiny")
    assert torch.as_tensor(graph.x)[4].tolist() == [8.0, 9.0]


@pytest.mark.parametrize("name", ["adj_full.npz", "feats.npy", "class_map.json", "role.json"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    (write(tmp_path) / name).unlink()
    with pytest.raises(GraphError, match=rf"{name}` is missing; put the file there or download"):
        read_saint(tmp_path, "tiny")


@pytest.mark.parametrize("name", ["adj_full.npz", "feats.npy", "class_map.json", "role.json"])
@pytest.mark.parametrize("change", ["empty", "cut", "garbage", "text"])
def test_corrupt_file_is_named(tmp_path: Path, name: str, change: str) -> None:
    path = write(tmp_path) / name
    whole = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "cut": whole[: len(whole) // 2], "garbage": bytes(range(256)), "text": b"<!DOCTYPE html>"}[
            change
        ]
    )
    with pytest.raises(GraphError, match=rf"(?s){name}` cannot be read .*download it again"):
        read_saint(tmp_path, "tiny")


@pytest.mark.parametrize(("old", "new"), [(b"{", b"["), (b"}", b" "), (b"'<f8'", b"'|O8'"), (b"(5, 2)", b"(5, 9)")])
def test_corrupt_header_of_the_features_is_reported(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = write(tmp_path) / "feats.npy"
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    with pytest.raises(GraphError, match=r"(?s)feats\.npy` cannot be read"):
        read_saint(tmp_path, "tiny")


def test_corrupt_array_in_the_archive_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path) / "adj_full.npz"
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("indices.npy").header_offset
    content = bytearray(path.read_bytes())
    content[offset + 60 : offset + 70] = bytes(10)
    path.write_bytes(content)
    with pytest.raises(GraphError, match=r"adj_full\.npz` cannot be read"):
        read_saint(tmp_path, "tiny")


@pytest.mark.parametrize("name", ["indices", "indptr", "shape", "format"])
def test_pickled_arrays_are_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{name: np.array([None, {}], dtype=object)})
    with pytest.raises(
        GraphError, match=r"adj_full\.npz` cannot be read \(an array holds Python objects, which are never read"
    ):
        read_saint(tmp_path, "tiny")


def test_pickled_features_are_refused(tmp_path: Path) -> None:
    write(tmp_path, feats=np.array([[None], [1.0]], dtype=object))
    with pytest.raises(GraphError, match=r"feats\.npy` cannot be read"):
        read_saint(tmp_path, "tiny")


def test_archive_in_place_of_the_features_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path) / "feats.npy"
    path.write_bytes((tmp_path / "adj_full.npz").read_bytes())
    with pytest.raises(GraphError, match=r"feats\.npy` cannot be read .*magic string"):
        read_saint(tmp_path, "tiny")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feats": np.zeros(5)}, r"feats\.npy` holds float64 of shape \(5,\), not numbers of shape"),
        ({"feats": np.zeros((5, 0))}, r"feats\.npy` holds float64 of shape \(5, 0\), not numbers of shape"),
        ({"feats": np.full((5, 2), "a")}, r"feats\.npy` holds <U1 of shape \(5, 2\), not numbers"),
        ({"feats": np.diag([1, 2, np.nan, 3, 4])}, r"feats\.npy` has a value in row 2 that is not a finite float32"),
        ({"feats": np.diag([1, 2, 3, 1e300, 4])}, r"feats\.npy` has a value in row 3 that is not a finite float32"),
        (
            {"feats": np.zeros((6, 2))},
            r"adj_full\.npz` has shape \[5, 5\] and 6 row pointers, but `feats.npy` has 6 rows",
        ),
        ({"shape": np.array([5, 6])}, r"adj_full\.npz` has shape \[5, 6\]"),
        ({"shape": None}, r"adj_full\.npz` cannot be read \(it lacks the array `shape`"),
        ({"indptr": None}, r"adj_full\.npz` cannot be read \(it lacks the array `indptr`"),
        ({"format": np.array(b"coo")}, r"adj_full\.npz` has format b'coo'; convert the matrix with `.tocsr\(\)`"),
        ({"indices": np.zeros(6)}, r"adj_full\.npz` has indices of type float64 and int32; both must be"),
        ({"indices": np.array([1, 0, 2, 1, 5, 3])}, r"adj_full\.npz` names node 5; nodes go from 0 to 4"),
        ({"indices": np.array([1, 0, 2, 1, -1, 3])}, r"adj_full\.npz` names node -1; nodes go from 0 to 4"),
        ({"indptr": np.array([0, 1, 3, 4, 5, 7])}, r"adj_full\.npz` has row pointers that do not rise from 0 to 6"),
        ({"indptr": np.array([0, 3, 1, 4, 5, 6])}, r"adj_full\.npz` has row pointers that do not rise from 0 to 6"),
        ({"class_map": []}, r"class_map\.json` holds a JSON `list`, not an object"),
        ({"class_map": {}}, r"class_map\.json` is empty"),
        ({"class_map": {"5": 1}}, r"class_map\.json` names node '5'; nodes go from 0 to 4"),
        ({"class_map": {"-1": 1}}, r"class_map\.json` names node '-1'"),
        ({"class_map": {"a": 1}}, r"class_map\.json` names node 'a'"),
        ({"class_map": {"9" * 5000: 1}}, r"class_map\.json` names node '9999"),
        ({"class_map": CLASSES | {"1": "x"}}, r"class_map\.json` gives node 1 the class 'x'; give integers from 0"),
        ({"class_map": CLASSES | {"1": 0.5}}, r"class_map\.json` gives node 1 the class 0.5"),
        ({"class_map": CLASSES | {"1": None}}, r"class_map\.json` gives node 1 the class None"),
        ({"class_map": CLASSES | {"1": True}}, r"class_map\.json` gives node 1 the class True"),
        ({"class_map": CLASSES | {"1": -2}}, r"class_map\.json` gives node 1 the class -2"),
        ({"class_map": CLASSES | {"1": [0, 1]}}, r"class_map\.json` gives node 1 the class \[0, 1\]"),
        ({"class_map": LABELS | {"1": 3}}, r"class_map\.json` does not give node 1 a list of 3 labels"),
        ({"class_map": LABELS | {"1": [0, 1]}}, r"class_map\.json` does not give node 1 a list of 3 labels"),
        ({"class_map": dict.fromkeys("01234", ())}, r"class_map\.json` does not give node 0 a list of 0 labels"),
        (
            {"class_map": LABELS | {"3": [0, 2, 1]}},
            r"class_map\.json` gives node 3 the label 2; the entries of a list",
        ),
        ({"class_map": LABELS | {"3": [0, 0.5, 1]}}, r"class_map\.json` gives node 3 the label 0.5"),
        ({"class_map": LABELS | {"3": [0, [1], 1]}}, r"class_map\.json` gives node 3 the label \[1\]"),
        ({"class_map": LABELS | {"3": [0, "1", 1]}}, r"class_map\.json` gives node 3 the label '1'"),
        ({"class_map": "[" * 100_000}, r"class_map\.json` cannot be read"),
        ({"role": []}, r"role\.json` holds a JSON `list`, not an object"),
        ({"role": {"tr": [0], "va": [1]}}, r"role\.json` has no list `te`"),
        ({"role": ROLES | {"va": 2}}, r"role\.json` has no list `va`"),
        ({"role": ROLES | {"va": [5]}}, r"role\.json` names node 5; nodes go from 0 to 4"),
        ({"role": ROLES | {"va": [-1]}}, r"role\.json` names node -1; nodes go from 0 to 4"),
        ({"role": ROLES | {"va": [1.5]}}, r"role\.json` names node 1.5"),
        ({"role": ROLES | {"va": [True]}}, r"role\.json` names node True"),
        ({"role": ROLES | {"va": [1]}}, r"role\.json` names node 1 in `va`, but it is in two roles"),
        ({"class_map": {"0": 1, "1": 0}}, r"role\.json` names node 2 in `va`, but it has no label in `class_map.json`"),
        ({"class_map": CLASSES | {"3": -1}}, r"role\.json` names node 3 in `te`, but it has no label"),
    ],
)
def test_inconsistent_content_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write(tmp_path, **changes)
    with pytest.raises(GraphError, match=message):
        read_saint(tmp_path, "tiny")
