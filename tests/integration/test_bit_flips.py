"""Flipped bits in the files of a graph: each is found, or the graph that is loaded is the same."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from lazygnn import load_graph
from lazygnn.errors import GraphError
from lazygnn.graph import Graph, without_warnings
from lazygnn.ops import Csr
from lazygnn.run.inputs import fingerprint


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Everything that a graph can have: weights, sparse features, three splits, ids, names and parts."""
    rng = np.random.default_rng(0)
    x = Csr.from_arrays(np.arange(0, 31, 3), rng.integers(0, 7, 30), rng.normal(size=30), 7)
    order = np.arange(10)
    return Graph.from_edges(
        np.stack((order, (order + 3) % 10)),
        x,
        order % 3,
        train_mask=order < 4,
        val_mask=(order >= 4) & (order < 7),
        test_mask=order >= 7,
        edge_weight=rng.uniform(0.5, 2, 10),
        node_ids=[f"node {number}" for number in order],
        class_names=("a", "b", "c"),
        name="graph",
    )


def files_of(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else [path]


def draws(path: Path, seed: int) -> Iterator[tuple[Path, int]]:
    """Draws a file and a bit of it without end; every file is drawn equally often."""
    rng = random.Random(seed)
    while True:
        for file in files_of(path):
            yield file, rng.randrange(8 * file.stat().st_size)


def flip(path: Path, graph: Graph, file: Path, bit: int) -> str:
    """Loads a graph with one flipped bit; returns what happened, and restores the file."""
    content = file.read_bytes()
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    file.write_bytes(changed)
    try:
        with without_warnings():
            loaded = load_graph(path)
    except GraphError as error:
        return "found" if str(path) in str(error) else f"not named in: {error}"
    finally:
        file.write_bytes(content)
    assert fingerprint(loaded) == fingerprint(graph), (file.name, bit)
    assert loaded.class_names == graph.class_names, (file.name, bit)
    assert loaded.name == graph.name, (file.name, bit)
    assert torch.equal(loaded.degree, graph.degree), (file.name, bit)
    assert loaded.node_ids is not None
    assert graph.node_ids is not None
    assert loaded.node_ids.tolist() == graph.node_ids.tolist(), (file.name, bit)
    return "no effect"


FORMS = ["folder", "npz"]
Report = Callable[[str], None]


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Report:
    """Prints a line to the terminal."""

    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n{line}")  # noqa: T201

    return show


def flips(graph: Graph, path: Path, count: int) -> Counter[str]:
    graph.save(path)
    saved = load_graph(path)
    drawn = draws(path, seed=0)
    return Counter(flip(path, saved, *next(drawn)) for _ in range(count))


@pytest.mark.parametrize("form", FORMS)
def test_a_flipped_bit_is_found_or_has_no_effect(graph: Graph, tmp_path: Path, form: str) -> None:
    outcomes = flips(graph, tmp_path / ("graph" if form == "folder" else "graph.npz"), 75)
    assert outcomes["found"] > 60


@pytest.mark.soak
@pytest.mark.parametrize("form", FORMS)
def test_a_thousand_flipped_bits_are_found_or_have_no_effect(
    graph: Graph, tmp_path: Path, form: str, tell: Report
) -> None:
    outcomes = flips(graph, tmp_path / ("graph" if form == "folder" else "graph.npz"), 1000)
    tell(f"{form}: 1000 flipped bits, {dict(outcomes)}")
    assert outcomes["found"] > 800


def test_without_its_checksums_a_folder_is_safe_to_use(graph: Graph, tmp_path: Path) -> None:
    """A flipped bit may change values, but no index leaves its range, whatever is computed."""
    graph.save(tmp_path / "graph")
    for seed, name in enumerate(("rowptr", "col", "x_rowptr", "x_col", "y", "train_mask")):
        file = tmp_path / "graph" / f"{name}.npy"
        content = file.read_bytes()
        rng = random.Random(seed)
        for _ in range(20):
            changed = bytearray(content)
            # after the header
            changed[rng.randrange(128, len(content))] ^= 1 << rng.randrange(8)
            file.write_bytes(changed)
            try:
                loaded = load_graph(tmp_path / "graph", verify=False)
            except GraphError:
                continue
            assert isinstance(loaded.x, Csr)
            dense = loaded.adj.to_dense() @ loaded.x.to_dense()
            assert dense.shape == (10, 7)
            assert loaded.permute(torch.arange(10).flip(0)).num_nodes == 10
        file.write_bytes(content)
