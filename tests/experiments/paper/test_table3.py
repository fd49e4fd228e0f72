"""Distances between connected nodes, and verdicts on Table 3."""

import pytest
import torch

from common.summary import Column, Row, Summary
from experiments.paper import table3
from experiments.paper.numbers import TABLE3
from experiments.paper.table3 import DEPTHS, distance, judge_table
from lazygnn.graph import Graph
from lazygnn.methods import Built, resolve
from tests.experiments.paper.helpers import outcomes


def measured(systems: dict[str, dict[int, float]]) -> Summary:
    rows = [Row(label=f"L = {depth}", cells=[{"mean": found[depth]} for found in systems.values()]) for depth in DEPTHS]
    return Summary(origin="", label="cora", columns=[Column(title=name) for name in systems], rows=rows)


def test_the_published_numbers_reproduce_the_claims() -> None:
    assert outcomes(judge_table(measured(TABLE3))) == ["reproduced"] * 4 + ["not measured"]


def test_verdicts_follow_the_numbers() -> None:
    falling, level = dict(zip(DEPTHS, (9.0, 10.0, 9.0, 8.0, 7.0), strict=True)), dict.fromkeys(DEPTHS, 3.0)
    found = outcomes(judge_table(measured({"GCN": level, "APPNP": falling, "LazyGNN": level, "ours": falling})))
    assert found == ["not reproduced"] * 3 + ["reproduced", "not reproduced"]
    # distances that rise first and fall later
    assert outcomes(judge_table(measured({"GCN": falling})))[:2] == ["reproduced", "reproduced"]
    rising = falling | {1: 1.0}
    assert outcomes(judge_table(measured({"GCN": rising})))[:2] == ["not reproduced", "reproduced"]


def test_the_distance_is_the_mean_over_edges(monkeypatch: pytest.MonkeyPatch, path_graph: Graph) -> None:
    model = torch.nn.Linear(1, 1)
    # 0 - 1 - 2 - 3: the distances are 5, 0 and 1
    outputs = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    monkeypatch.setattr(table3, "train", lambda _: Built(model, None, path_graph))  # type: ignore[arg-type]
    monkeypatch.setattr(table3, "infer", lambda *_: outputs)
    assert distance(resolve("gcn", "path"))["distance"] == pytest.approx(2)
