from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn.errors import CheckpointError
from lazygnn.graph import Graph
from lazygnn.methods import resolve
from lazygnn.run import inputs
from lazygnn.run.folder import INPUTS, Run
from lazygnn.run.inputs import (
    check_inputs,
    check_parts,
    check_same_graph,
    check_same_shards,
    check_shards,
    describe_graph,
    fingerprint,
)

CPU = torch.device("cpu")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", resolve("mlp", "block", {"epochs": 3}))


def changed(graph: Graph, field: str) -> Graph:
    """Changes one number of a graph."""
    if field == "masks":
        masks = {split: mask.clone() for split, mask in graph.masks.items()}
        masks["val"][int(masks["val"].nonzero()[0])] = False
        return replace(graph, masks=masks)
    if field in ("col", "value"):
        array = getattr(graph.adj, field).clone()
        array[3] += 1
        return replace(graph, adj=replace(graph.adj, **{field: array}))
    array = getattr(graph, field).clone()
    array[3] += 1
    return replace(graph, **{field: array})


@pytest.mark.parametrize("field", ["x", "y", "col", "value", "masks"])
def test_one_changed_number_is_another_graph(block_graph: Graph, run: Run, field: str) -> None:
    check_inputs(run, block_graph, CPU)
    check_inputs(run, block_graph, CPU)
    message = r"graph `block` has other content than when run `.*run` was started; restore it, give its folder with"
    with pytest.raises(CheckpointError, match=message):
        check_inputs(run, changed(block_graph, field), CPU)


def test_changed_names_are_another_graph(block_graph: Graph, run: Run) -> None:
    named = replace(block_graph, class_names=("a", "b", "c"), node_ids=np.array([f"n{node}" for node in range(60)]))
    check_inputs(run, named, CPU)
    check_same_graph(run, named)
    for other in (replace(named, class_names=("a", "c", "b")), replace(named, node_ids=named.node_ids[::-1])):  # type: ignore[index]
        with pytest.raises(CheckpointError, match="give another graph with `--graph`, or take it as it is with `--no"):
            check_same_graph(run, other)
        check_same_graph(Run.open(run.path, verify=False), other)


def test_another_number_of_threads_is_a_warning(
    block_graph: Graph, run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    check_inputs(run, block_graph, CPU)
    before = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: before + 1)
    check_inputs(run, block_graph, torch.device("cuda"))
    assert caplog.messages == []
    check_inputs(run, block_graph, CPU)
    assert f"was started with {before} threads and goes on with {before + 1}" in caplog.text


def test_other_shards_are_refused(block_graph: Graph, run: Run) -> None:
    # a run of one process, or of an earlier version, has no record of them
    check_same_shards(run, "a")
    run.save_inputs({**describe_graph(block_graph)})
    check_shards(run, "a")
    check_shards(run, "a")
    assert run.inputs() == {**describe_graph(block_graph), "shards": "a"}
    check_same_graph(run, block_graph)
    for check in (check_shards, check_same_shards):
        with pytest.raises(CheckpointError, match=r"the graph has other content than when run `.*run` was started"):
            check(run, "b")
        check(Run.open(run.path, verify=False), "b")
    assert run.inputs()["shards"] == "a"


def test_other_parts_are_refused(block_graph: Graph, run: Run) -> None:
    check_inputs(run, block_graph, CPU)
    order, ptr = torch.arange(60), torch.tensor([0, 30, 60])
    check_parts(run, order, ptr, "kaminpar 3.7.3")
    check_parts(run, order, ptr, None)
    assert run.inputs()["graph"] == fingerprint(block_graph)
    message = (
        "the graph is divided by kaminpar 4.0.0 into other parts than when run `.*run` was started, by kaminpar 3.7.3; "
        "install that version, or start a new run with `lazygnn train --init-from .*run`"
    )
    for other in ((order.flip(0), ptr), (order, torch.tensor([0, 20, 60]))):
        with pytest.raises(CheckpointError, match=message):
            check_parts(run, *other, "kaminpar 4.0.0")


def test_a_run_of_an_earlier_version_has_no_record(block_graph: Graph, run: Run) -> None:
    assert run.inputs() == {}
    check_inputs(run, block_graph, CPU)
    assert run.inputs()["graph"] == fingerprint(block_graph)
    (run.path / INPUTS).write_text("[]")
    with pytest.raises(CheckpointError, match="does not hold a JSON object"):
        check_inputs(run, block_graph, CPU)


def test_large_arrays_are_sampled_at_both_ends(block_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fingerprint(block_graph)
    for name, value in (("_MOST_BYTES", 100), ("_PIECES", 3), ("_PIECE", 16)):
        monkeypatch.setattr(inputs, name, value)
    sampled = fingerprint(block_graph)
    assert sampled != whole
    assert isinstance(block_graph.x, Tensor)
    for row in (0, -1):
        x = block_graph.x.clone()
        x[row] += 1
        assert fingerprint(replace(block_graph, x=x)) != sampled
