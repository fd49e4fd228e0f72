"""Verdicts on Table 6."""

from experiments.paper.numbers import TABLE6
from experiments.paper.table6 import HALF, NEITHER, OURS, SYSTEMS, judge_table
from tests.experiments.paper.helpers import outcomes, published, scores


def test_the_published_numbers_reproduce_the_claims() -> None:
    assert outcomes(judge_table(published(TABLE6))) == ["reproduced", "reproduced", "not measured"]
    assert SYSTEMS.keys() == TABLE6.keys() | {OURS}


def test_verdicts_follow_the_numbers() -> None:
    def found(neither: float, half: float, ours: float) -> list[str]:
        others = dict.fromkeys(TABLE6, 71.0)
        return outcomes(judge_table(scores({"a": others | {NEITHER: neither, HALF: half, OURS: ours}})))

    no, yes = "not reproduced", "reproduced"
    assert found(70.0, 72.0, 72.1) == [yes, yes, yes]
    assert found(71.1, 70.9, 71.0) == [no, no, no]


def test_a_graph_counts_when_all_settings_were_run() -> None:
    missing = {name: 71.0 for name in TABLE6 if name != HALF}
    assert outcomes(judge_table(scores({"a": missing}))) == ["not measured"] * 3
