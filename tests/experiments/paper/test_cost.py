"""Time and memory of the systems of Table 1."""

from pathlib import Path

import pytest

from common.summary import Column, Row, Summary
from experiments.best import Place
from experiments.graphs import SMALL
from experiments.paper import cost
from experiments.paper.commands import QUICK
from experiments.paper.cost import MEMORY, draw, judge_table, run
from experiments.paper.frame import Plan, cells_of
from experiments.paper.measuring import TIME, UPDATES
from experiments.paper.table1 import MINI, OURS_MINI, SYSTEMS
from tests.experiments.paper.helpers import outcomes


def plan(*systems: str, stored: bool = False) -> Plan:
    place = Place(device="cpu", workers=0, folder="quick/", also=QUICK, stored=stored)
    return Plan(datasets=(SMALL,), systems=systems, seeds=1, place=place, quick=True)


def made_up(**graphs: dict[str, tuple[float, float]]) -> Summary:
    """Returns a table of times and memory, by graph and system."""
    names = dict.fromkeys(name for found in graphs.values() for name in found)
    rows = [
        Row(label=name, cells=[{"value": number} for found in graphs.values() for number in found[name]])
        for name in names
    ]
    columns = [Column(title=f"{graph}: {title}", format="{value}") for graph in graphs for title in (TIME, MEMORY)]
    return Summary(origin="", label="system", columns=columns, rows=rows)


@pytest.mark.usefixtures("results")
def test_every_system_has_a_time_and_its_updates() -> None:
    found = run(plan())
    times, updates = cells_of(found, f"{SMALL}: {TIME}"), cells_of(found, f"{SMALL}: {UPDATES}")
    assert list(times) == list(updates) == list(SYSTEMS)
    assert all(cell["value"] > 0 for cell in times.values())
    assert [updates[name]["value"] for name in ("GCN (full)", "GCN (GAS)", OURS_MINI)] == [1, 4, 4]
    assert cells_of(found, f"{SMALL}: {MEMORY}") == {}
    assert [row.label for row in found.rows if row.bold] == ["ours (full)", "ours (mini)", "ours (deep)"]


@pytest.mark.usefixtures("results")
def test_what_is_stored_is_not_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(plan("SGC", stored=True)).rows[0].cells == [None] * 3
    first = run(plan("SGC"))

    def fail(*_: object, **__: object) -> None:
        pytest.fail("measured again")

    monkeypatch.setattr(cost, "measure", fail)
    assert run(plan("SGC")) == first
    assert run(plan("SGC", stored=True)) == first


@pytest.mark.usefixtures("results")
def test_a_system_that_does_not_fit_has_empty_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "measure", lambda *_, **__: {"status": "out of memory"})
    assert run(plan("SGC")).rows[0].cells == [None] * 3


def test_verdicts_follow_the_numbers() -> None:
    good = {"APPNP (GAS)": (2.0, 50.0), "GCNII (full)": (1.0, 100.0), MINI: (1.5, 60.0), OURS_MINI: (1.0, 40.0)}
    assert outcomes(judge_table(made_up(a=good, b=good))) == ["reproduced"] * 3
    slow = good | {MINI: (2.5, 60.0), OURS_MINI: (2.1, 101.0)}
    assert outcomes(judge_table(made_up(a=good, b=slow))) == ["reproduced in part"] * 3
    assert outcomes(judge_table(made_up(a=slow))) == ["not reproduced"] * 3
    assert outcomes(judge_table(made_up(a={MINI: (1.0, 1.0)}))) == ["not measured"] * 3


def test_the_worst_graph_is_that_of_the_largest_share() -> None:
    small = {"APPNP (GAS)": (0.01, 1.0), "GCNII (full)": (1.0, 1.0), MINI: (0.05, 1.0), OURS_MINI: (0.01, 1.0)}
    large = {"APPNP (GAS)": (10.0, 1.0), "GCNII (full)": (1.0, 1.0), MINI: (11.0, 1.0), OURS_MINI: (9.0, 1.0)}
    assert "the worst is 0.05 s against 0.01 s on small" in judge_table(made_up(small=small, large=large))[0].why


def test_a_picture_has_both_numbers_of_every_graph(tmp_path: Path) -> None:
    table = {"APPNP (GAS)": (2.0, 50.0), OURS_MINI: (1.0, 40.0)}
    draw(made_up(a=table, b=table, c=table), tmp_path / "cost.png")
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")
