import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments import best, depth, grid
from experiments.best import Place
from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.methods import METHODS, recipes, resolve

RUN = {"commit": "1", "date": "2026", "machine": "m", "python": "3", "torch": "2"}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, block_graph: Graph) -> list[Config]:
    """Replaces training: a run by a recipe validates better for `gcn` alone."""
    configs: list[Config] = []

    def run(_: str, wanted: Sequence[Config], *, workers: int, **rest: object) -> list[dict[str, Any]]:
        assert workers == 2
        configs.extend(wanted)
        lines = []
        for config in wanted:
            by_rule = config.trainer.optimizer == "adamw"
            better = by_rule != (config.method == "gcn")
            scores = {"val": 0.8 if better else 0.7, "test": 0.5 if by_rule else 0.6}
            lines.append(RUN | {"key": grid.key_of(config), "metric": "accuracy"} | scores)
        return lines

    monkeypatch.setattr(best, "run_most", run)
    monkeypatch.setattr(best, "load", lambda *_: block_graph)
    monkeypatch.setattr(recipes, "_SIZES", {})
    return configs


def test_a_cell_is_that_of_rule_or_recipe_whichever_validates_better(trained: list[Config]) -> None:
    summary = depth.main(2, ["lazygnn-deep", "gcn", "appnp"], ["cora", "minesweeper"], Place(device="cpu", workers=2))
    means = {row.label: [cell["mean"] for cell in row.cells if cell is not None] for row in summary.rows}
    # minesweeper has no recipe, so the rule counts
    assert means == {"lazygnn-deep": [50.0, 50.0], "gcn": [60.0, 50.0], "appnp": [50.0, 50.0]}
    assert [row.bold for row in summary.rows] == [True, False, False]
    assert len(trained) == 2 * ((1 + 3 + 2) + (1 + 2 + 1))
    assert {config.trainer.metric for config in trained if config.dataset == "minesweeper"} == {"roc-auc"}


def test_stored_runs_alone_leave_other_cells_empty(
    monkeypatch: pytest.MonkeyPatch, trained: list[Config], block_graph: Graph, tmp_path: Path
) -> None:
    monkeypatch.setattr(grid, "RESULTS", tmp_path)

    def table() -> dict[str, list[float | None]]:
        rows = depth.main(2, ["gcn", "mlp"], ["cora", "dblp"], Place(device="cpu", stored=True)).rows
        return {row.label: [None if cell is None else cell["mean"] for cell in row.cells] for row in rows}

    assert table() == {"gcn": [None, None], "mlp": [None, None]}
    assert trained == []
    configs = [
        resolve(method, dataset, {"diagnose_every": 0}, graph=block_graph, use_recipe=False, seed=seed)
        for method, dataset in [("gcn", "cora"), ("mlp", "dblp")]
        for seed in (0, 1)
    ]
    lines = [RUN | {"key": grid.key_of(config), "metric": "accuracy", "val": 0.5, "test": 0.25} for config in configs]
    (tmp_path / "depth.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    # the recipe of GCN for Cora has not been trained
    assert table() == {"gcn": [None, None], "mlp": [None, 25.0]}


def test_cells_with_other_options_than_todays_are_listed(
    monkeypatch: pytest.MonkeyPatch, trained: list[Config]
) -> None:
    place, cases, datasets = Place(device="cpu", workers=2), ["gcn", "mlp"], ["cora", "dblp"]
    summary = depth.main(2, cases, datasets, place)
    monkeypatch.setattr(depth, "load_summary", lambda _: summary)
    trained.clear()
    # of several ways to set a method, any counts
    assert depth.outdated([*cases, "appnp"], [*datasets, "actor"], place) == []
    changed = Place(device="cpu", also={"dropout": 0.45})
    assert depth.outdated(cases, datasets[1:], changed) == [
        "dblp, gcn: other options today",
        "dblp, mlp: other options today",
    ]
    for row in summary.rows[:1]:
        for cell in row.cells:
            assert cell is not None
            del cell["options"]
    assert depth.outdated(cases, datasets, place) == [
        "cora, gcn: options not recorded",
        "dblp, gcn: options not recorded",
    ]
    assert trained == []


def test_gcnii_may_be_shallow_where_that_validates_better(trained: list[Config]) -> None:
    depth.main(1, ["gcnii", "gcn"], ["cora", "dblp"], Place(device="cpu", workers=2))
    found = [
        (config.dataset, config.model.num_layers, config.model.norm)  # type: ignore[attr-defined]
        for config in trained
        if config.method == "gcnii"
    ]
    # by the rule, by the recipe for Cora, with two layers, and with two and batch norm
    assert [dataset for dataset, _, _ in found] == ["cora"] * 4 + ["dblp"] * 3
    assert found[-3:] == [("dblp", 8, "none"), ("dblp", 2, "none"), ("dblp", 2, "batch")]


def test_one_row_takes_no_recipe(trained: list[Config]) -> None:
    cases = ["lazygnn", "lazygnn, by the rule"]
    depth.main(1, cases, ["cora"], Place(device="cpu", workers=2))
    assert [config.trainer.optimizer for config in trained] == ["adamw", "adam", "adamw"]
    # without a recipe, both rows are the same
    assert set(depth.rows_of(["cora", "pubmed"])) - set(depth.rows_of(["cora", "dblp"])) == {cases[1]}
    assert set(depth.rows_of(["cora", "pubmed"])) == set(depth.CASES)


def test_every_method_with_a_rule_has_a_row_and_every_row_can_be_resolved(trained: list[Config]) -> None:
    assert {method for method, _ in depth.CASES.values()} == {
        name for name, method in METHODS.items() if method.adapt is not None
    }
    depth.main(1, list(depth.CASES), ["dblp"], Place(device="cpu", workers=2))
    exact = [config for config in trained if getattr(config.model, "exact", False)]
    assert [config.model.num_layers for config in exact] == [10]  # type: ignore[attr-defined]
    loaders = [getattr(config.model, "loader", "cluster") for config in trained]
    assert (loaders.count("neighbor"), loaders.count("saint")) == (1, 1)


@pytest.mark.parametrize(
    ("datasets", "table"),
    [
        (["cora", "pubmed"], "depth-planetoid"),
        (["arxiv", "dblp"], "depth"),
        (["arxiv", "cora"], "depth"),
        (["mine.npz"], "depth-others"),
        (["arxiv", "mine.npz"], "depth-others"),
    ],
    ids=str,
)
def test_a_graph_of_ones_own_changes_no_table_of_the_ten_graphs(datasets: list[str], table: str) -> None:
    assert depth.table_of(datasets) == table
