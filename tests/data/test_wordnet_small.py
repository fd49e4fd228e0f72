"""The embedded graph `wordnet-small.npz` and its script: reproducible, and no leak of labels into features or order."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "src" / "lazygnn" / "data" / "wordnet-small.npz"
SYSTEM_WORDNET = Path("/usr/share/wordnet")
DIGEST = "75d3645da8837d4803580c61c6dc82f00a0fb1c1801e3ebbceb6c87928c22613"
NODES, EDGES, CLASSES = 117_659, 183_789, 45

Arrays = dict[str, NDArray[Any]]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_wordnet", ROOT / "scripts" / "build_wordnet.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    with np.load(FILE, allow_pickle=False) as file:
        return dict(file)


def test_digest(script: ModuleType, arrays: Arrays) -> None:
    assert script.digest(arrays) == DIGEST


def test_digest_sees_names_types_shapes_and_values(script: ModuleType) -> None:
    base = np.arange(6, dtype=np.int32)
    variants = [{"a": base}, {"b": base}, {"a": base.view(np.float32)}, {"a": base.reshape(2, 3)}, {"a": base[::-1]}]
    assert len({script.digest(variant) for variant in variants}) == len(variants)


def test_size_and_license() -> None:
    assert FILE.stat().st_size <= 8_000_000
    license = FILE.with_suffix(".LICENSE.txt").read_text(encoding="utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in license
    assert "Permission to use, copy, modify and distribute" in license


def test_edges(arrays: Arrays) -> None:
    row, col = arrays["edge_index"].astype(np.int64)
    assert arrays["edge_index"].dtype == np.int32
    assert arrays["edge_index"].shape == (2, 2 * EDGES)
    assert row.min() >= 0
    assert row.max() < NODES
    assert not np.any(row == col)
    keys = row * NODES + col
    assert np.all(np.diff(keys) > 0), "sorted by (row, column), without duplicates"
    np.testing.assert_array_equal(np.sort(col * NODES + row), keys)


def test_labels(arrays: Arrays) -> None:
    assert arrays["y"].dtype == np.int64
    assert arrays["y"].shape == (NODES,)
    np.testing.assert_array_equal(np.unique(arrays["y"]), np.arange(CLASSES))
    names = arrays["class_name"]
    assert len(set(names.tolist())) == names.size == CLASSES
    # The id starts with the part of speech, which must match that of the class name.
    letters = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
    expected = np.array([letters[name.split(".")[0]] for name in names.tolist()])
    np.testing.assert_array_equal(arrays["node_ids"].astype("U1"), expected[arrays["y"]])
    assert np.unique(arrays["node_ids"]).size == NODES


def test_known_synset(arrays: Arrays) -> None:
    (entity,) = np.flatnonzero(arrays["node_ids"] == "n00001740")
    assert arrays["class_name"][arrays["y"][entity]] == "noun.Tops"
    neighbors = arrays["edge_index"][1][arrays["edge_index"][0] == entity]
    assert set(arrays["node_ids"][neighbors].tolist()) == {"n00001930", "n00002137", "n04424418"}


def test_masks(arrays: Arrays) -> None:
    masks = [arrays[f"{part}_mask"] for part in ("train", "val", "test")]
    assert all(mask.dtype == np.bool_ for mask in masks)
    np.testing.assert_array_equal(np.sum(masks, axis=0), np.ones(NODES))
    assert [int(mask.sum()) for mask in masks] == [70_595, 23_532, 23_532]


def test_features(arrays: Arrays) -> None:
    indptr, indices, data = arrays["x_indptr"], arrays["x_indices"], arrays["x_data"]
    assert [array.dtype.name for array in (indptr, indices, data)] == ["int32", "int32", "float16"]
    assert arrays["x_shape"].tolist() == [NODES, 2048]
    assert indptr[0] == 0
    assert indptr[-1] == indices.size == data.size
    assert np.diff(indptr).min() > 0, "every synset has a definition"
    rows = np.repeat(np.arange(NODES, dtype=np.int64), np.diff(indptr))
    assert np.all(np.diff(rows * 2048 + indices) > 0), "sorted in a row, without duplicates"
    assert indices.min() >= 0
    assert indices.max() < 2048
    assert data.min() >= 1
    assert np.array_equal(data, np.round(data))


def test_order_and_split_do_not_depend_on_the_label(arrays: Arrays) -> None:
    y = arrays["y"]
    share = np.bincount(y) / NODES
    by_chance = float(np.sum(share**2))
    assert abs(float(np.mean(y[1:] == y[:-1])) - by_chance) < 0.005, "neighbors in the order are equal by chance only"
    for label in np.flatnonzero(share * NODES > 500):
        members = np.flatnonzero(y == label)
        spread = 1 / np.sqrt(members.size)
        assert abs(members.mean() / NODES - 0.5) < 5 * spread / np.sqrt(12), f"mean position of class {label}"
        assert abs(arrays["train_mask"][members].mean() - 0.6) < 5 * spread * np.sqrt(0.24), f"share of class {label}"


@pytest.mark.skipif(not (SYSTEM_WORDNET / "data.noun").exists(), reason="the Debian package wordnet-base is missing")
def test_rebuild_equals_the_file(script: ModuleType, arrays: Arrays) -> None:
    built = script.build(SYSTEM_WORDNET)
    assert list(built) == list(arrays)
    for name, array in arrays.items():
        assert built[name].dtype == array.dtype, name
        np.testing.assert_array_equal(built[name], array, err_msg=name)


class Line(NamedTuple):
    """One synset of the tiny WordNet, a line of a data file."""

    pos: str
    offset: int
    lex_file: int
    words: Sequence[str]
    pointers: Sequence[tuple[str, int, str]]
    gloss: str


DOG = 'a domesticated carnivore of the family; a pet; "the dog barked all night"'
WOLF = "a wild carnivore of the family that hunts in packs"
RUN = 'move fast on the feet; "Don\'t run - you will be out of breath"'
FAST = "acting or moving quickly"
OLD = (
    Line("n", 1740, 5, ["dog", "domestic_dog"], [("@", 2000, "n"), ("+", 1740, "v")], DOG),
    Line("n", 2000, 5, ["wolf"], [("~", 1740, "n")], WOLF),
    Line("v", 1740, 38, ["run"], [("+", 1740, "n")], RUN),
    Line("s", 1740, 0, ["fast"], [], FAST),
    Line("r", 3000, 2, ["fast"], [("\\", 1740, "s"), ("!", 3000, "r")], "at great speed"),
)
# The glosses are the same; part of speech, offset, label, words, pointers and the order of the lines differ.
NEW = (
    Line("v", 4000, 40, ["sell"], [("*", 4100, "v"), ("$", 4200, "a")], WOLF),
    Line("v", 4100, 29, ["wear", "put_on", "don"], [], DOG),
    Line("a", 4200, 44, ["sold(p)"], [("<", 4000, "v")], "at great speed"),
    Line("n", 4300, 27, ["acid"] * 12, [], FAST),
    Line("r", 4400, 2, ["gladly"], [("\\", 4200, "a")], RUN),
)


def write_wordnet(folder: Path, lines: Sequence[Line]) -> Path:
    folder.mkdir()
    for name, pos in (("noun", "n"), ("verb", "v"), ("adj", "as"), ("adv", "r")):
        text = "".join(format_line(line) for line in lines if line.pos in pos)
        (folder / f"data.{name}").write_text(f"  1 This software and database is being provided | to you  \n{text}")
    return folder


def format_line(line: Line) -> str:
    words = " ".join(f"{word} 0" for word in line.words)
    pointers = "".join(f"{symbol} {offset:08d} {pos} 0000 " for symbol, offset, pos in line.pointers)
    frames = "01 + 02 00 " if line.pos == "v" else ""
    head = f"{line.offset:08d} {line.lex_file:02d} {line.pos} {len(line.words):02x} {words} {len(line.pointers):03d} "
    return f"{head}{pointers}{frames}| {line.gloss}  \n"


def features_by_gloss(arrays: Arrays, lines: Sequence[Line]) -> dict[str, dict[int, float]]:
    rows = {str(node): i for i, node in enumerate(arrays["node_ids"])}
    spans = {line.gloss: arrays["x_indptr"][rows[node_id(line)] :][:2] for line in lines}
    return {
        gloss: dict(zip(arrays["x_indices"][a:b].tolist(), arrays["x_data"][a:b].tolist(), strict=True))
        for gloss, (a, b) in spans.items()
    }


def node_id(line: Line) -> str:
    return f"{line.pos.replace('s', 'a')}{line.offset:08d}"


def named_edges(arrays: Mapping[str, NDArray[Any]]) -> set[tuple[str, str]]:
    ids = arrays["node_ids"].tolist()
    return {(ids[i], ids[j]) for i, j in arrays["edge_index"].T}


def test_features_come_from_the_gloss_alone(script: ModuleType, tmp_path: Path) -> None:
    old = script.build(write_wordnet(tmp_path / "old", OLD))
    new = script.build(write_wordnet(tmp_path / "new", NEW))
    features = features_by_gloss(old, OLD)
    assert features == features_by_gloss(new, NEW)
    assert len({tuple(row) for row in features.values()}) == len(OLD), "different glosses give different features"
    assert sum(features["at great speed"].values()) == 3
    assert sum(features[DOG].values()) == 8, "words of the definition are counted, those of the example are not"


def test_labels_alone_change_nothing_else(script: ModuleType, tmp_path: Path) -> None:
    old = script.build(write_wordnet(tmp_path / "old", OLD))
    new = script.build(write_wordnet(tmp_path / "new", [line._replace(lex_file=44 - line.lex_file) for line in OLD]))
    assert [name for name in old if not np.array_equal(old[name], new[name])] == ["y"]
    np.testing.assert_array_equal(old["y"], 44 - new["y"])


def test_pointers_become_undirected_edges(script: ModuleType, tmp_path: Path) -> None:
    arrays = script.build(write_wordnet(tmp_path / "old", OLD))
    pairs = {("n00001740", "n00002000"), ("n00001740", "v00001740"), ("r00003000", "a00001740")}
    assert named_edges(arrays) == pairs | {(b, a) for a, b in pairs}
    assert arrays["edge_index"].shape == (2, 6)


def test_save_and_load(script: ModuleType, tmp_path: Path) -> None:
    arrays = script.build(write_wordnet(tmp_path / "old", OLD))
    script.save(arrays, tmp_path / "new" / "graph.npz")
    with np.load(tmp_path / "new" / "graph.npz", allow_pickle=False) as file:
        assert script.digest(dict(file)) == script.digest(arrays)


def test_errors(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FileNotFoundError, match="wordnet-base"):
        script.build(tmp_path)
    with pytest.raises(SystemExit):
        script.main(["--source", str(tmp_path), "--out", str(tmp_path / "out.npz")])
    assert "wordnet-base" in capsys.readouterr().err
    with pytest.raises(ValueError, match="a00001740"):
        script.build(write_wordnet(tmp_path / "cut", OLD[:3] + OLD[4:]))
    with pytest.raises(ValueError, match="number 45"):
        script.build(write_wordnet(tmp_path / "label", [OLD[3]._replace(lex_file=45)]))
