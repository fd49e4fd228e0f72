"""Changes of hidden features, and verdicts on the figures."""

import pytest

from common.summary import Column, Row, Summary
from experiments.paper.redundancy import EARLY, LATE, SYSTEMS, changes, judge_figure
from lazygnn.methods import resolve
from tests.experiments.paper.helpers import outcomes


def measured(**late: float) -> Summary:
    rows = [
        Row(label=name, cells=[{"value": 1.0}, {"value": value}])
        for name, value in zip(SYSTEMS, late.values(), strict=True)
    ]
    return Summary(origin="", label="cora", columns=[Column(title=title) for title in (EARLY, LATE)], rows=rows)


def test_verdicts_follow_the_numbers() -> None:
    slow = judge_figure(measured(gcn=0.01, gcn_dropout=0.3, appnp=0.02, appnp_dropout=0.4))
    assert outcomes(slow) == ["reproduced"] * 3
    fast = judge_figure(measured(gcn=0.6, gcn_dropout=0.55, appnp=0.7, appnp_dropout=0.6))
    assert outcomes(fast) == ["not reproduced"] * 3
    mixed = judge_figure(measured(gcn=0.01, gcn_dropout=0.3, appnp=0.2, appnp_dropout=0.1))
    assert outcomes(mixed) == ["reproduced in part", "reproduced", "reproduced in part"]


@pytest.mark.parametrize("method", ["gcn", "appnp"])
def test_outputs_change_with_the_learning_rate_and_with_dropout(method: str) -> None:
    def found(**values: float) -> list[float]:
        options = {"epochs": 4, "eval_every": 4, "dropout": 0.0, "lr": 1e-12} | values
        series: list[float] = changes(resolve(method, "small", options, device="cpu"))["changes"]
        return series

    still = found()
    assert len(still) == 3
    assert max(still) < 1e-6
    assert min(found(lr=0.05)) > 1e-3
    assert min(found(dropout=0.5)) > 0.05
