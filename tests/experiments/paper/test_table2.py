"""Verdicts on Table 2."""

import pytest

from common.shapes import find_shape
from common.summary import Column, Row, Summary
from experiments.paper.measuring import GPU, HOST, TIME
from experiments.paper.numbers import TABLE2
from experiments.paper.table2 import SYSTEMS, _drawn, configure, judge_table
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


def test_graphsage_is_measured_on_a_few_batches_with_their_sampling(block_graph: Graph) -> None:
    system = SYSTEMS["GraphSAGE"]
    few = system._replace(values=system.values | {"batch_size": 4})
    shape = find_shape("tiny")
    found = _drawn(configure(few, shape, "cpu"), shape, few, [block_graph])
    drawn, _, whole = found["batches"].partition(" of ")
    assert int(drawn) == 3 < int(whole)
    assert found[TIME] > 0
