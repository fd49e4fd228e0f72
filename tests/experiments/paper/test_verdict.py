"""Verdicts are computed from numbers and can go either way."""

import pytest

from experiments.paper.verdict import Check, Verdict, above, at_least, close, judge


def cell(mean: float, deviation: float = 0.0, seeds: int = 1) -> dict[str, float]:
    return {"mean": mean, "deviation": deviation, "seeds": seeds}


@pytest.mark.parametrize(
    ("margins", "outcome"),
    [
        ((), "not measured"),
        ((0.0,), "reproduced"),
        ((-0.1,), "not reproduced"),
        ((1.0, 2.0), "reproduced"),
        ((1.0, -2.0), "reproduced in part"),
        ((1.0, -2.0, -1.0), "not reproduced"),
    ],
)
def test_a_verdict_counts_the_places_where_a_claim_holds(margins: tuple[float, ...], outcome: str) -> None:
    checks = [Check(f"graph {number}", margin, f"{margin}") for number, margin in enumerate(margins)]
    verdict = judge("A claim", checks, "a reason")
    assert verdict.outcome == outcome
    assert ("a reason" in verdict.why) == (min(margins, default=0) < 0)
    assert verdict.markdown().startswith(f"- **{outcome}**: A claim. ")


def test_a_verdict_names_the_worst_place() -> None:
    checks = [
        Check("cora", -1.0, "1 against 2"),
        Check("arxiv", -3.0, "1 against 4"),
        Check("dblp", 1.0, "2 against 1"),
    ]
    why = "It holds in 1 of 3 cases; the worst is 1 against 4 on arxiv: steps are few."
    assert judge("A claim", checks, "steps are few") == Verdict("A claim", "not reproduced", why)
    why = "It holds in 2 of 2 cases; the closest is 2 against 1 on dblp."
    assert judge("A claim", [checks[2], checks[2]._replace(margin=5)], "").why == why


def test_scores_are_compared_up_to_the_standard_error_of_their_difference() -> None:
    # errors of 0.3 and 0.4, so 0.5 of the difference
    one, other = cell(70.0, 0.6, 4), cell(70.4, 0.8, 4)
    assert at_least("", one, other).margin == pytest.approx(0.1)
    assert at_least("", one, cell(70.0)).margin == pytest.approx(0.3)
    assert at_least("", one, cell(70.6)).margin == pytest.approx(-0.3)
    assert above("", other, one).margin == pytest.approx(-0.1)
    assert above("", cell(71.0), one).margin == pytest.approx(0.7)
    assert above("", cell(71.0), cell(71.0)).margin < 0
    assert close("", cell(71.0), cell(70.2), 1.0).margin == pytest.approx(0.2)
    assert close("", cell(71.0), cell(72.2), 1.0).margin == pytest.approx(-0.2)
    assert close("", cell(71.0), cell(72.2), 1.0).found == "71.00 against 72.20"
