"""Several ranks beside one process: the same values, stored results, and the table."""

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments import ranks, torchrun
from experiments.best import Place
from experiments.cli import app
from experiments.grid import Result
from lazygnn.config import Config
from lazygnn.data.synthetic import block_graph
from lazygnn.errors import RankError
from lazygnn.graph import Graph
from lazygnn.methods import build
from tests.distributed.workers import run_command

LABELS = [
    "lazygnn, one process",
    "lazygnn, 2 ranks",
    "lazygnn, difference",
    "lazygnn, one process, 2 parts a batch",
]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.npz"
    block_graph(240, 4, degree=8, in_channels=8, num_classes=4).save(path)
    return path


def invoke(dataset: Path, *more: object) -> Any:
    words = ["ranks", "--dataset", dataset, "--epochs", 2, "--ranks", 2, "--seeds", 1, "--device", "cpu", *more]
    return CliRunner().invoke(app, list(map(str, words)))


def check_all_kinds(done: Any, results: Path) -> None:
    assert done.exit_code == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| lazygnn")]
    assert [row[0].removeprefix("| ") for row in rows] == LABELS
    merged, several = (json.loads(line) for line in (results / "ranks.jsonl").read_text().splitlines())
    (one,) = (json.loads(line) for line in (results / "ranks-one.jsonl").read_text().splitlines())
    shown = [rows[position][1].removesuffix(" |") for position in (0, 1, 3)]
    assert shown == [f"{100 * line['test']:.2f} ± -" for line in (one, several, merged)]
    assert "ranks" not in merged
    assert (one["ranks"], several["ranks"]) == (1, 2)
    assert {line["epochs"] for line in (one, several, merged)} == {2}
    assert one["halo_bytes_per_epoch"] == 0 < several["halo_bytes_per_epoch"]
    assert one["key"] == several["key"] != merged["key"]
    values = [line["config"]["trainer"] | line["config"]["model"] for line in (merged, several)]
    differing = {name for name in values[0] if values[0][name] != values[1][name]}
    assert differing == {"parts_per_batch", "parts_per_step"}


def test_each_kind_is_trained_once(results: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(size: int, words: Sequence[str], folder: Path, stop: Event) -> None:
        assert not stop.is_set()
        assert [text.splitlines()[-1] for text in run_command(size, words, folder)] == ["exit 0"] * size

    monkeypatch.setattr(torchrun, "launch", launch)
    first = invoke(tiny)
    check_all_kinds(first, results)
    monkeypatch.delattr(torchrun, "launch")
    again = invoke(tiny)
    assert again.stdout.splitlines()[:3] == ["1 of 1 runs are stored; 0 to train"] * 3
    assert again.stdout.splitlines()[3:] == [line for line in first.stdout.splitlines() if line.startswith("|")]


def test_ranks_that_fail_are_one_line_and_a_status(results: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*_: object) -> None:
        raise RankError("2 ranks have failed: no such value")

    monkeypatch.setattr(torchrun, "launch", launch)
    done = invoke(tiny)
    assert done.exit_code == 2
    assert done.stderr.splitlines() == ["error: 2 ranks have failed: no such value"]
    # what is trained before is kept
    assert len((results / "ranks.jsonl").read_text().splitlines()) == 1


@pytest.mark.soak
def test_torchrun_starts_the_ranks(results: Path, tiny: Path) -> None:
    check_all_kinds(invoke(tiny), results)


@pytest.mark.parametrize("method", ranks.METHODS)
@pytest.mark.parametrize("size", [3, 4])
def test_both_kinds_take_the_same_number_of_steps(method: str, size: int) -> None:
    graph = block_graph(240, 4, degree=8, in_channels=8, num_classes=4)
    one, several = ranks.configure(method, "mine", 5, graph, size, Place())
    assert len(build(one, graph).loader) == -(-ranks.PARTS // size)
    assert several.trainer == one.trainer.model_copy(update={"parts_per_step": size})
    assert several.model == one.model.model_copy(update={"parts_per_batch": 1})
    assert (one.seed, several.seed) == (5, 5)


def test_a_table_has_differences_with_their_errors_and_bytes(monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    about = {"commit": "1", "date": "2026", "machine": "m", "python": "3", "torch": "2"}

    def alone(_: Place, store: str, configs: Sequence[Config]) -> list[Result]:
        assert store == ranks.STORE
        return [about | {"test": 0.5 + 0.02 * config.seed} for config in configs]

    def together(store: str, wanted: Sequence[tuple[Config, Graph]], size: int, workers: int) -> list[Result]:
        assert (store, size, workers) in [(ranks.STORE, 4, 1), (ranks.ALONE, 1, 1)]
        if size == 1:
            return [about | {"test": 0.3 + 0.02 * config.seed} for config, _ in wanted]
        sent = {"halo_bytes_per_epoch": 3_000_000, "allreduce_bytes_per_epoch": 1_250_000_000}
        return [
            about | sent | {"test": (0.51 if config.method == "lazygnn" else 0.4) + 0.02 * config.seed}
            for config, _ in wanted
        ]

    monkeypatch.setattr(Place, "run", alone)
    monkeypatch.setattr(ranks, "run_ranks", together)
    summary = ranks.main(2, ranks.METHODS, [str(tiny)], 4, Place(also={"epochs": 9}))
    options = "--seeds 2 --ranks 4 --method lazygnn --method lazygnn-deep --dataset tiny --epochs 9"
    assert summary.origin == f"python -m experiments ranks {options}"
    assert summary.markdown().splitlines() == [
        "| method | tiny | tiny, halo, MB | tiny, gradients, MB |",
        "| --- | --- | --- | --- |",
        "| lazygnn, one process | 31.00 ± 1.00 |  |  |",
        "| lazygnn, 4 ranks | 52.00 ± 1.00 | 3.00 | 1,250.00 |",
        "| lazygnn, difference | 21.00 ± 1.41 |  |  |",
        "| lazygnn, one process, 4 parts a batch | 51.00 ± 1.00 |  |  |",
        "| lazygnn-deep, one process | 31.00 ± 1.00 |  |  |",
        "| lazygnn-deep, 4 ranks | 41.00 ± 1.00 | 3.00 | 1,250.00 |",
        "| lazygnn-deep, difference | 10.00 ± 1.41 |  |  |",
        "| lazygnn-deep, one process, 4 parts a batch | 51.00 ± 1.00 |  |  |",
    ]


@pytest.mark.parametrize(("option", "value"), [("--method", "gcn"), ("--ranks", 1), ("--ranks", ranks.PARTS + 1)])
def test_other_methods_and_impossible_numbers_of_ranks_are_refused(tiny: Path, option: str, value: object) -> None:
    done = invoke(tiny, option, value)
    assert done.exit_code == 2
    assert f"Invalid value for {option}" in done.stderr.replace("'", "")
