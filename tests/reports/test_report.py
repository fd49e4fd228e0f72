import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from lazygnn.errors import DivergenceError, GraphError
from lazygnn.graph import Graph
from lazygnn.reports import make_report
from lazygnn.training.metrics import find_metric

Judged = Callable[[str], tuple[Tensor, Graph]]
COMMON = {"format", "version", "task", "split", "nodes", "scores", "errs", "mistakes"}


@pytest.mark.parametrize(
    ("kind", "own", "groups"),
    [
        ("single-label", {"classes", "confusion", "calibration"}, {"degree", "distance", "agreement"}),
        ("multi-label", {"classes", "calibration", "threshold"}, {"degree", "distance"}),
        ("regression", {"numbers", "by_target"}, {"degree", "distance"}),
    ],
)
def test_a_report_has_what_applies_to_its_task(judged: Judged, kind: str, own: set[str], groups: set[str]) -> None:
    outputs, graph = judged(kind)
    report = make_report(outputs, graph)
    assert report.keys() == COMMON | own
    assert (report["task"], report["split"], report["nodes"]) == (kind, "test", 100)
    assert report["errs"].keys() == groups | {"measure", "overall"}
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    # every group together is the whole
    for name in groups:
        rows = report["errs"][name]
        assert sum(row["nodes"] for row in rows) == 100
        assert sum(row["nodes"] * row["mean"] for row in rows) / 100 == pytest.approx(report["errs"]["overall"])
    assert {row["node"] for row in report["mistakes"]} <= set(graph.node_ids[graph.masks["test"].numpy()].tolist())  # type: ignore[index]
    for name in graph.task.metrics:
        _, metric = find_metric(name, graph.task)
        for split, mask in graph.masks.items():
            assert report["scores"][name][split] == metric(outputs[mask], graph.y[mask])


def test_the_overall_measure_is_the_accuracy(judged: Judged) -> None:
    outputs, graph = judged("single-label")
    report = make_report(outputs, graph)
    assert report["errs"]["overall"] == pytest.approx(report["scores"]["accuracy"]["test"])
    assert (
        sum(row[index] for index, row in enumerate(report["confusion"])) / 100 == report["scores"]["accuracy"]["test"]
    )


def test_the_temperature_is_fitted_on_validation_alone(judged: Judged) -> None:
    outputs, graph = judged("single-label")
    plain = make_report(outputs, graph)["calibration"]
    changed = outputs.clone()
    changed[graph.masks["test"]] *= 9
    found = make_report(changed, graph)["calibration"]
    assert found["temperature"] == plain["temperature"]
    assert found["before"]["error"] != plain["before"]["error"]
    masks = {split: mask for split, mask in graph.masks.items() if split != "val"}
    without = make_report(outputs, replace(graph, masks=masks))["calibration"]
    assert (without["temperature"], without["after"]) == (None, None)
    assert without["before"] == plain["before"]


def test_the_first_split_that_exists_is_judged(judged: Judged) -> None:
    outputs, graph = judged("single-label")
    assert make_report(outputs, graph, split="val")["nodes"] == 50
    only = replace(graph, masks={"val": graph.masks["val"]})
    report = make_report(outputs, only)
    assert report["split"] == "val"
    assert "distance" not in report["errs"]
    with pytest.raises(GraphError, match="graph `graph` has no split `test`; choose one of: val"):
        make_report(outputs, only, split="test")
    with pytest.raises(GraphError, match="has no splits; give it labels and a `test_mask` to report on"):
        make_report(outputs, replace(graph, masks={}))


def test_a_metric_that_is_not_defined_on_a_split_is_left_out(judged: Judged) -> None:
    outputs, graph = judged("single-label")
    one = torch.zeros(200, dtype=torch.bool)
    one[2] = True
    report = make_report(outputs, replace(graph, masks=dict(graph.masks) | {"test": one}))
    assert report["scores"]["roc-auc"].keys() == {"train", "val"}
    assert report["scores"]["accuracy"].keys() == {"train", "val", "test"}


def test_wrong_outputs_are_refused(judged: Judged) -> None:
    outputs, graph = judged("single-label")
    with pytest.raises(GraphError, match=r"`outputs` is .*give the outputs of every node, \(200, 4\)"):
        make_report(outputs[:10], graph)
    outputs[graph.masks["test"]] = torch.nan
    with pytest.raises(DivergenceError, match="the outputs of split `test` hold nan"):
        make_report(outputs, graph)
