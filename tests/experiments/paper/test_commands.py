"""The commands of the reproductions."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from common.summary import load_summary
from experiments.cli import app
from experiments.paper import commands
from experiments.paper.commands import EXPERIMENTS


def test_all_tables_and_figures_can_be_tried_in_a_moment(results: Path) -> None:
    done = CliRunner().invoke(app, ["all", "--quick", "--device", "cpu"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.stdout.count("its numbers and verdicts mean nothing\n") == len(EXPERIMENTS)
    for name, experiment in EXPERIMENTS.items():
        assert f"# {experiment.title}\n" in done.stdout
        assert (results / "quick" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    verdicts = [line for line in done.stdout.splitlines() if line.startswith("- **")]
    assert len(verdicts) > 30
    assert {line.split("**")[1] for line in verdicts} >= {"reproduced", "not reproduced"}
    # every system has a row with a number, but for the memory of a GPU
    assert "| **ours (deep)** |  |" not in done.stdout
    # what is stored is not measured again
    again = CliRunner().invoke(app, ["table3", "--quick", "--stored", "--device", "cpu"], catch_exceptions=False)
    assert "measured\n" not in again.stdout
    found = [line for line in again.stdout.splitlines() if line.startswith("- **")]
    assert found
    assert set(found) <= set(verdicts)


def test_an_unknown_system_is_one_line_and_a_status() -> None:
    done = CliRunner().invoke(app, ["table1", "--system", "GCN (full)", "--system", "GraphSaint"])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: unknown system `GraphSaint`; did you mean `GraphSAINT`?")


@pytest.mark.parametrize("name", ["table1", "table4", "table5", "table6", "communication"])
def test_a_graph_that_is_missing_is_one_error_before_any_run(name: str, results: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [name, "--datasets", "absent", "--root", str(tmp_path), "--device", "cpu"])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert "absent" in done.stderr
    assert "failed" not in done.stdout
    assert not list(results.glob("*.jsonl"))


def test_a_table_is_saved_with_the_command_that_makes_it(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(commands, "TABLES", tmp_path)
    words = ["communication", "--datasets", "small", "--system", "ours, 2 layers", "--save"]
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert (tmp_path / "images" / "communication.png").is_file()
    summary = load_summary("communication", tmp_path)
    assert summary.origin == "python -m experiments communication --datasets small --seeds 1"
    assert [column.title for column in summary.columns] == ["rows sent", "ours, 2 layers"]
    assert summary.rows[0].label == "small, 2 parts"


def test_a_saved_table_keeps_the_systems_that_are_not_run_again(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "IMAGES", tmp_path / "images")
    monkeypatch.setattr(commands, "TABLES", tmp_path)
    for system in ("ours, 2 layers", "APPNP, 10 layers"):
        words = ["communication", "--datasets", "small", "--system", system, "--save"]
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    summary = load_summary("communication", tmp_path)
    assert [column.title for column in summary.columns] == ["rows sent", "ours, 2 layers", "APPNP, 10 layers"]
    assert all(cell is not None for row in summary.rows for cell in row.cells)
