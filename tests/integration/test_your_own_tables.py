"""The commands of docs/guides/your-own-tables.md, in their order, from CSV files to predictions for new rows."""

import csv
import json
import runpy
import sys
from pathlib import Path

import pytest

from lazygnn.cli import main
from lazygnn.data import load_graph
from tests.integration.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "guides" / "your-own-tables.md"
COMMANDS = [line[2:] for line in blocks(PAGE, "console")[0].splitlines() if line.startswith("$ ")]
SEGMENTS = {"business", "family", "senior", "student"}


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_commands_of_the_page_lead_to_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: None)
    runpy.run_path(str(ROOT / "examples" / "customer_tables.py"))["main"]()
    printed = {}
    for command in COMMANDS:
        # few epochs, since what is tested is the way and not the score
        quick = " --set epochs=15 --set eval_every=5 --set diagnose_every=0" if " train " in command else ""
        words = (command + quick).split()
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        assert stop.value.code in (0, None), captured.err
        printed[words[1]] = captured

    facts = json.loads(printed["import"].out)
    rows = read(tmp_path / "customers.csv")
    assert facts["nodes"] == len(rows) == 5000
    assert facts["unlabeled"] == sum(not row["segment"] for row in rows)
    assert facts["train"] + facts["val"] + facts["test"] + facts["unlabeled"] == 5000
    assert facts["self_loops"] >= 20
    assert facts["repeated"] >= 100
    assert facts["isolated"] >= 50
    # the page shows what the command says
    said = [line for line in printed["import"].err.splitlines() if line.startswith("- ")]
    shown = [line for line in blocks(PAGE, "text")[1].splitlines() if line.startswith("- ")]
    assert said[: len(shown)] == shown

    graph = load_graph(tmp_path / "customers")
    assert graph.schema is not None
    assert set(graph.class_names or ()) == SEGMENTS
    assert 0.2 < json.loads(printed["evaluate"].out)["test"] <= 1
    predicted = read(tmp_path / "new.csv")
    assert [row["node"] for row in predicted] == [row["id"] for row in read(tmp_path / "new_customers.csv")]
    assert {row["prediction"] for row in predicted} <= SEGMENTS
