"""Verdicts on Table 2."""

import pytest
import torch

from common.shapes import find_shape
from common.summary import Column, Row, Summary
from experiments.paper import table2
from experiments.paper.numbers import TABLE2
from experiments.paper.table2 import GPU, HOST, SYSTEMS, TIME, configure, judge_table
from lazygnn.graph import Graph
from tests.experiments.paper.helpers import outcomes


def measured(rows: dict[str, dict[str, float]]) -> Summary:
    made = [
        Row(label=label, cells=[{"value": row[unit]} if unit in row else None for unit in (TIME, GPU, HOST)])
        for label, row in rows.items()
    ]
    columns = [Column(title=f"products: {unit}", format="{value}") for unit in (TIME, GPU, HOST)]
    return Summary(origin="", label="system", columns=columns, rows=made)


def test_the_published_numbers_reproduce_the_claims_as_far_as_they_are_given() -> None:
    yes, missing = "reproduced", "not measured"
    assert outcomes(judge_table(measured(TABLE2)))[:4] == [yes, missing, yes, yes]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["reproduced"] * 4),
        ({"ours": {TIME: 2.1, GPU: 90.0}}, ["not reproduced", "reproduced", "reproduced", "reproduced"]),
        ({"ours": {TIME: 1.0, GPU: 101.0}}, ["reproduced", "reproduced", "not reproduced", "reproduced"]),
        ({"ours, L=4": {TIME: 1.0, GPU: 100.0}}, ["reproduced", "not reproduced", "reproduced", "reproduced"]),
        ({"ours, host": {TIME: 3.1, GPU: 10.0}}, ["reproduced", "reproduced", "reproduced", "not reproduced"]),
    ],
)
def test_verdicts_follow_the_numbers(changes: dict[str, dict[str, float]], expected: list[str]) -> None:
    rows = {
        "APPNP (GAS)": {TIME: 2.0, GPU: 100.0},
        "APPNP (GAS), host": {TIME: 3.0, GPU: 50.0, HOST: 50.0},
        "GraphSAGE": {TIME: 4.0, GPU: 10.0},
        "ours": {TIME: 1.0, GPU: 90.0},
        "ours, host": {TIME: 2.0, GPU: 10.0},
        "ours, L=1": {TIME: 1.0, GPU: 85.0},
        "ours, L=4": {TIME: 1.0, GPU: 91.0},
    }
    verdicts = judge_table(measured(rows | changes))
    assert outcomes(verdicts) == ["not measured"] * 4 + expected


def test_a_system_that_does_not_fit_is_out_of_memory(monkeypatch: pytest.MonkeyPatch, block_graph: Graph) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(table2, "build", full)
    config = configure(SYSTEMS["ours"], find_shape("tiny"), "cpu")
    assert table2.measure(config, block_graph, None) == {"status": "out of memory"}
