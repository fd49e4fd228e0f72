"""`graph.json` by itself; tests/data/test_folder.py loads whole folders."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from lazygnn.data.folder import load_folder, save_folder
from lazygnn.data.folder_header import HEADER, Header, check_files, mask_name, read_header, write_header
from lazygnn.errors import GraphError
from lazygnn.graph import Graph
from tests.data.test_folder import assert_same, sparse_graph


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_folder(sparse_graph(), tmp_path / "g")
    return tmp_path / "g"


def change(folder: Path, **fields: Any) -> None:
    """Changes the header and makes it one of version 1, which has no checksums."""
    drop = {"version": 1, "checksums": "drop", "checksum": "drop"}
    header = json.loads((folder / "graph.json").read_text()) | drop | fields
    (folder / "graph.json").write_text(json.dumps({key: value for key, value in header.items() if value != "drop"}))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "other", r"`format` is 'other'"),
        ("version", 3, r"`version` is '3'"),
        ("version", 2, r"graph.json` is damaged: its checksum does not match its content"),
        ("name", 5, r"`name` is '5'"),
        ("name", "drop", r"`name` is .*: Field required"),
        ("task", "clustering", r"`task` is 'clustering'"),
        ("num_nodes", 0, r"`num_nodes` is '0': .* greater than or equal to 1"),
        ("num_nodes", "4", r"`num_nodes` is '4': .* integer"),
        ("num_nodes", 10**30, r"`num_nodes` is '10+': .* less than"),
        ("num_outputs", 1.5, r"`num_outputs` is '1.5'"),
        ("class_names", ["a", 1], r"`class_names.1` is '1'"),
        ("class_names", ["a"], r"has 1 class names for 2 classes"),
        ("arrays", ["../../etc/passwd"], r"`arrays.0` is '../../etc/passwd'"),
        ("arrays", ["x"], r"graph.json` does not list the array `rowptr`|x.npy` is missing"),
        ("extra", 1, r"`extra` is '1': Extra inputs are not permitted"),
        ("in_channels", 2**31, r"`in_channels` is '2147483648'"),
    ],
)
def test_a_wrong_header_names_field_and_value(field: str, value: Any, message: str, folder: Path) -> None:
    change(folder, **{field: value})
    with pytest.raises(GraphError, match=message) as error:
        load_folder(folder)
    assert "write the graph again with `lazygnn import`" in str(error.value)


@pytest.mark.parametrize("content", ["", "[]", "null", "{", "\x00", '{"name": "\\ud800"}'])
def test_a_header_that_is_not_json(content: str, folder: Path) -> None:
    (folder / "graph.json").write_text(content)
    with pytest.raises(GraphError, match=r"graph.json`: `.*` is .*; write the graph again"):
        load_folder(folder)


def test_a_header_that_is_nested_deep_is_refused(folder: Path) -> None:
    (folder / "graph.json").write_text("[" * 100_000)
    with pytest.raises(GraphError, match=r"graph.json` cannot be read \(it is nested more than 64 deep\); write the"):
        load_folder(folder)


def test_a_folder_of_version_1_is_read(folder: Path) -> None:
    change(folder)
    assert_same(load_folder(folder), sparse_graph())


def test_a_folder_without_a_header(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(GraphError, match=r"graph.json` is missing; give a folder that `lazygnn import`"):
            load_folder(path)


def test_every_file_has_its_checksum(folder: Path) -> None:
    header = read_header(folder / HEADER)
    assert header.checksums is not None
    assert set(header.checksums) == set(header.arrays)
    for name, checksum in header.checksums.items():
        assert zlib.crc32((folder / f"{name}.npy").read_bytes()) == checksum
    check_files(folder, header)


def test_a_file_that_changed_is_named(folder: Path) -> None:
    header = read_header(folder / HEADER)
    file = folder / "value.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(GraphError, match=r"value.npy` is damaged: its checksum is [0-9a-f]{8}, it was written with"):
        check_files(folder, header)
    with pytest.raises(GraphError, match=r"value.npy` is damaged"):
        load_folder(folder)
    load_folder(folder, verify=False)


def test_a_header_that_changed_is_refused(folder: Path) -> None:
    text = (folder / HEADER).read_text()
    (folder / HEADER).write_text(text.replace("small one", "small two"))
    with pytest.raises(GraphError, match=r"graph.json` is damaged: its checksum does not match its content"):
        load_folder(folder, verify=False)


@pytest.mark.parametrize("change", [{"in_channels": 10**8}, {"task": "single-label", "num_outputs": 10**8}])
def test_a_width_that_nothing_fills_is_refused(path_graph: Graph, tmp_path: Path, change: dict[str, Any]) -> None:
    save_folder(path_graph if "task" in change else sparse_graph(), tmp_path)
    header = json.loads((tmp_path / HEADER).read_text())
    known = {name: header[name] for name in ("name", "task", "num_nodes", "in_channels", "num_outputs", "arrays")}
    fields = known | change
    write_header(tmp_path, Header(**fields | {"arrays": tuple(header["arrays"])}))
    with pytest.raises(GraphError, match=r"is 100,000,000, with \d+ entries to fill them"):
        load_folder(tmp_path)


def test_masks_are_named_after_their_split() -> None:
    assert [mask_name(split) for split in ("train", "val", "test")] == ["train_mask", "val_mask", "test_mask"]
