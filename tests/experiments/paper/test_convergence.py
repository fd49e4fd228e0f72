"""Verdicts on convergence."""

from common.summary import Column, Row, Sources, Summary
from experiments.paper.convergence import BEST, EPOCHS, SECONDS, _cells, judge_table
from tests.experiments.paper.helpers import outcomes


def measured(**epochs: int) -> Summary:
    names = ("GCN (GAS)", "GCNII (GAS)", "APPNP (GAS)", "LazyGNN", "ours")
    rows = [
        Row(label=name, cells=[{"value": 70.0}, {"value": number}, {"value": 1.0}])
        for name, number in zip(names, epochs.values(), strict=True)
    ]
    columns = [Column(title=title) for title in (BEST, EPOCHS, SECONDS)]
    return Summary(origin="", label="arxiv", columns=columns, rows=rows)


def test_verdicts_follow_the_numbers() -> None:
    found = judge_table(measured(gcn=100, gcnii=110, appnp=120, lazy=120, ours=150))
    assert outcomes(found) == ["reproduced", "reproduced", "reproduced", "not reproduced"]
    found = judge_table(measured(gcn=100, gcnii=90, appnp=200, lazy=160, ours=140))
    assert outcomes(found) == ["not reproduced", "reproduced", "reproduced in part", "reproduced"]


def test_a_run_has_converged_when_it_is_within_a_point_of_its_best() -> None:
    log = [
        {"epoch": epoch, "seconds": 0.5, "scores": scores}
        for epoch, scores in [(5, {"val": 0.5}), (7, None), (10, {"val": 0.692}), (15, {"val": 0.7})]
    ]
    best, epochs, seconds = _cells({"log": log}, Sources())
    assert best is not None
    assert best["curve"] == [[5, 0.5, 50.0], [10, 1.5, 69.2], [15, 2.0, 70.0]]
    assert [cell["value"] for cell in (best, epochs, seconds) if cell] == [70.0, 10, 1.5]
