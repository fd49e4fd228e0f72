"""The staleness study: from cases to tables and a figure."""

from pathlib import Path

import pytest

from experiments import cases, training_figure
from experiments.cases import CASES, DATASETS, EXACT
from experiments.published import TABLES
from experiments.staleness import compare, differences, train
from tests.experiments.helpers import small_graph


@pytest.mark.usefixtures("results")
def test_cases_are_trained_compared_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "RECIPE", cases.RECIPE | {"epochs": 20, "hidden_channels": 8})
    dataset, fitted = str(small_graph(tmp_path / "small.npz")), "fitted to 0.9, 2 steps"
    tables = compare([EXACT, fitted], [dataset], 2, "batch")
    trained = train(tables[0], None, "cpu", 1)
    found = [table.kind(table, trained) for table in tables]
    assert [[row.label for row in summary.rows] for summary in found] == [
        [EXACT, fitted],
        [fitted],
        [EXACT, fitted],
        [EXACT, fitted],
    ]
    assert [len(summary.columns) for summary in found] == [2, 2, 1, 1]
    scores, difference, diagnostics, times = (summary.rows[-1].cells[0] for summary in found)
    assert scores is not None
    assert difference is not None
    exact = found[0].rows[0].cells[0]
    assert exact is not None
    assert difference["mean"] == pytest.approx(scores["mean"] - exact["mean"])
    assert scores["seeds"] == difference["seeds"] == 2
    # exact steps store nothing
    assert found[2].rows[0].cells[0] is None
    assert diagnostics is not None
    assert diagnostics["fixed_point_error"] > 0
    assert times is not None
    assert times["seconds"] > 0
    assert {source["commit"] for summary in found for source in summary.sources}
    training_figure.draw(trained.logs([EXACT, fitted]), tmp_path / "images" / "figure.png")
    assert (tmp_path / "images" / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_comparisons_depend_on_what_there_is_to_compare() -> None:
    assert len(compare([EXACT], DATASETS, 2, "none")) == 2
    assert len(compare([EXACT, "exact, 2 steps"], DATASETS, 1, "none")) == 3
    assert len(compare([EXACT, "exact, 2 steps"], DATASETS, 2, "none")) == 4


def test_tables_of_the_docs_are_made_of_known_cases_and_graphs() -> None:
    for name, table in TABLES.items():
        runs = table.runs()
        assert {case for case, _, _ in runs} <= CASES.keys(), name
        assert {dataset for _, dataset, _ in runs} <= set(DATASETS), name


def test_a_table_of_differences_needs_exact_steps_with_the_same_seeds() -> None:
    table = TABLES["staleness-levels"]
    assert table.kind is differences
    runs = set(table.runs())
    assert {(EXACT, dataset, seed) for _, dataset, seed in runs} <= runs
