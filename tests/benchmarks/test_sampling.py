"""Draws beside training steps, and batches that are wrong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.published import Results, sampling
from benchmarks.sampling import Layer, check, drawn_layers, main, samplers
from common.shapes import draw
from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.loader.sampled import SampledLoader
from lazygnn.methods import build, resolve
from tests.benchmarks.helpers import CARRIED, CPU, read_result, tiny

SMALL = tiny(num_nodes=300, in_channels=4, degree=6.0)


def test_every_sampler_is_measured_checked_and_published(tmp_path: Path) -> None:
    report = main(SMALL, CPU, repeats=1, folder=tmp_path)
    assert {row["sampler"]: row["status"] for row in report.rows} == dict.fromkeys(samplers(300), "ok")
    assert not report.failed()
    result, page = read_result(tmp_path)
    assert result.keys() >= CARRIED
    assert "| graphsaint-walk |" in page
    for row in result["rows"]:
        assert row["draw / step"] == pytest.approx(row["draw ms"] / row["step ms"])
        assert row["draw ms"] > 0
        assert 0 < row["targets"] <= row["nodes"] <= 300
    by_name = {row["sampler"]: row for row in result["rows"]}
    assert by_name["lazygnn-neighbor"]["settings"] == "batch_size 15, num_neighbors [10, 5]"
    assert by_name["fastgcn"]["settings"] == "batch_size all, num_samples 75"
    # rows of stored neighbors are read, not computed
    assert by_name["lazygnn-saint"]["nodes"] > by_name["lazygnn-saint"]["targets"]
    (file,) = tmp_path.glob("*.json")
    assert len(sampling(Results([file])).markdown().splitlines()) == 2 + len(samplers(300))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return draw(SMALL, CPU)


def drawn(graph: Graph, method: str, **values: Any) -> tuple[Graph, Batch, list[Layer]]:
    built = build(resolve(method, "tiny", values, graph=graph), graph)
    assert isinstance(built.loader, SampledLoader)
    return built.graph, *drawn_layers(built.loader, position=0, seed=0)


@pytest.mark.parametrize(("method", "values"), [("ladies", {"num_layers": 3}), ("lazygnn", {"loader": "neighbor"})])
def test_a_batch_that_is_wrong_is_found(graph: Graph, method: str, values: dict[str, Any]) -> None:
    graph, batch, layers = drawn(graph, method, **values)
    assert check(graph, batch, layers) == {"status": "ok"}
    assert isinstance(batch.x, Tensor)
    # a node of a layer is replaced by one that is not its neighbor, or by one that is there already
    first = layers[0]
    shifted, doubled = (first.columns + 1) % 300, first.columns.clone()
    doubled[1] = doubled[0]
    reasons = {
        "entries are in the graph": (batch, [Layer(first.rows, shifted), *layers[1:]]),
        "nodes are distinct": (batch, [Layer(first.rows, doubled), *layers[1:]]),
        "features are those of the nodes": (replace(batch, x=batch.x + 1), layers),
        "labels are those of the targets": (replace(batch, y=(batch.y + 1) % 5), layers),
    }
    for reason, case in reasons.items():
        found = check(graph, *case)
        assert found["status"] == "wrong"
        assert reason in found["reason"]


def test_recording_the_layers_of_a_draw_changes_nothing(graph: Graph) -> None:
    built = build(resolve("fastgcn", "tiny", {"num_layers": 3}, graph=graph), graph)
    assert isinstance(built.loader, SampledLoader)
    one, layers = drawn_layers(built.loader, position=0, seed=3)
    other = built.loader.draw(0, torch.Generator().manual_seed(3))
    assert [len(layer.columns) for layer in layers] == [adj.num_cols for adj in one.adjs]
    for mine, theirs in zip(one.adjs, other.adjs, strict=True):
        assert torch.equal(mine.to_dense(), theirs.to_dense())
