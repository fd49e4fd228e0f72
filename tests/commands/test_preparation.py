from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lazygnn import commands, partition
from lazygnn.commands.preparation import describe_parts
from lazygnn.data import load_graph
from lazygnn.partitioning.choice import engine_version
from lazygnn.run.predictions import node_names


def test_sizes_are_described_with_units(dataset: Path) -> None:
    found = commands.prepare(str(dataset), 4, "random", 3)
    assert (found["nodes"], found["smallest_part"], found["largest_part"]) == (60, 15, 15)
    words = describe_parts(found)
    assert words.startswith(f"60 nodes, {found['edges']} edges, in 4 parts of 15 to 15 nodes; ")
    assert f"; {100 * found['edge_cut']:.1f}% of the edges are between parts; halo nodes per node of a part: " in words
    assert f"{found['mean_halo']:.2f} within 1 hop (at most {found['max_halo']:.2f})" in words
    assert words.endswith(f"{found['mean_deep_halo']:.2f} within 3 hops")
    assert (found["partition"], found["partition_engine"]) == ("random", None)


def test_the_engine_is_named_and_stored(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_CACHE", str(tmp_path / "cache"))
    found = commands.prepare(str(dataset), 4, "auto", 1, balance="edges", out=tmp_path / "prepared")
    assert (found["partition"], found["partition_engine"]) == ("metis", engine_version("metis"))
    assert f" in 4 parts by {engine_version('metis')} of " in describe_parts(found)
    prepared = load_graph(tmp_path / "prepared")
    assert prepared.part_engine == engine_version("metis")
    assert partition(prepared, 4).engine == engine_version("metis")
    assert prepared.permute(torch.arange(60).flip(0)).part_engine is None


def test_predictions_on_a_sorted_folder_name_the_nodes_of_the_graph(dataset: Path, tmp_path: Path) -> None:
    graph = load_graph(dataset)
    assert graph.node_ids is None
    commands.prepare(str(dataset), 4, "random", 1, out=tmp_path / "prepared")
    prepared = load_graph(tmp_path / "prepared")
    ids = torch.from_numpy(node_names(prepared))
    assert not torch.equal(ids, torch.arange(60))
    assert torch.equal(prepared.y, graph.y[ids])
    # ids stay with their nodes
    named = tmp_path / "named.npz"
    replace(graph, node_ids=np.array([f"n{node}" for node in range(60)])).save(named)
    commands.prepare(str(named), 4, "random", 1, out=tmp_path / "with-ids")
    assert node_names(load_graph(tmp_path / "with-ids")).tolist() == [f"n{node}" for node in ids]


def test_every_stage_is_announced(dataset: Path, tmp_path: Path) -> None:
    stages: list[str] = []
    commands.prepare(str(dataset), 4, "random", 1, out=tmp_path / "prepared", tell=stages.append)
    assert stages == [
        "partitioning 60 nodes into 4 parts",
        "measuring the halos",
        f"writing {tmp_path / 'prepared'}",
    ]
    part_ptr = load_graph(tmp_path / "prepared").part_ptr
    assert part_ptr is not None
    assert part_ptr.tolist() == [0, 15, 30, 45, 60]
