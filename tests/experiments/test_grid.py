"""The grid stores every result and trains only what is missing."""

import io
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from common.termination import exit_on_sigterm
from experiments import grid
from experiments.cases import EXACT, configure
from lazygnn.errors import GraphError
from lazygnn.methods import resolve
from tests import processes
from tests.experiments.helpers import small_graph


def test_a_grid_trains_only_what_is_missing(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = str(small_graph(tmp_path / "small.npz"))
    configs = [resolve("mlp", dataset, {"epochs": 2}, seed=seed, device="cpu") for seed in range(2)]
    first = grid.run_grid("table", configs[:1])
    both = grid.run_grid("table", configs)
    assert "1 of 2 runs are stored; 1 to train" in capsys.readouterr().out
    assert both[0] == first[0]
    assert [line["seed"] for line in both] == [0, 1]
    assert grid.run_grid("table", configs) == both
    assert "2 of 2 runs are stored; 0 to train" in capsys.readouterr().out
    lines = [json.loads(line) for line in (results / "table.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        assert {"commit", "date", "machine", "torch", "config", "val", "test", "seconds_per_epoch"} <= line.keys()
        assert "root" not in line["config"]


def workers_of(pid: int) -> list[int]:
    """Returns the worker processes of `pid`."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            started_by = re.search(r"^PPid:\s+(\d+)$", status.read_text(), re.MULTILINE)
            if started_by and int(started_by[1]) == pid and b"spawn_main" in (status.parent / "cmdline").read_bytes():
                found.append(int(status.parent.name))
    return found


def train_without_end(folder: str, dataset: str) -> None:
    """Runs a grid of one training with its files in a folder."""
    sys.stdout = io.StringIO()
    tempfile.tempdir = folder
    grid.RESULTS = Path(folder)
    exit_on_sigterm()
    grid.run_grid("table", [resolve("mlp", dataset, {"epochs": 10**7}, device="cpu")])


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="processes are found in /proc")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_grid_leaves_no_workers_behind(tmp_path: Path, signum: signal.Signals) -> None:
    dataset = small_graph(tmp_path / "small.npz")
    process = processes.context().Process(target=train_without_end, args=(str(tmp_path), str(dataset)))
    process.start()
    assert process.pid is not None
    deadline = time.monotonic() + 120
    # the run folder appears when training starts
    while not list(tmp_path.glob("*/*/run/log.jsonl")):
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    workers = workers_of(process.pid)
    assert workers
    os.kill(process.pid, signum)
    # SIGKILL cannot be caught, so the folders remain
    caught = signum == signal.SIGTERM
    process.join(120)
    assert process.exitcode == (128 + signum if caught else -signum)
    assert bool(list(tmp_path.glob("*/*/run"))) != caught
    while any(Path(f"/proc/{worker}").is_dir() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_first_run_that_fails_ends_the_grid(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    datasets = str(small_graph(tmp_path / "small.npz")), str(tmp_path / "gone.npz")
    configs = [resolve("mlp", dataset, {"epochs": 10**7}, device="cpu") for dataset in datasets]
    with pytest.raises(GraphError, match=r"^no file `.*gone.npz`"):
        grid.run_grid("table", configs, workers=2)
    assert not multiprocessing.active_children()
    assert [path.name for path in tmp_path.iterdir()] == ["small.npz"]


def test_a_grid_may_go_on_where_a_run_fails(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets = str(tmp_path / "gone.npz"), str(small_graph(tmp_path / "small.npz"))
    configs = [resolve("mlp", dataset, {"epochs": 2}, device="cpu") for dataset in datasets]
    failed, done = grid.run_most("table", configs)
    assert failed is None
    assert done is not None
    assert done["dataset"] == datasets[1]
    assert f"{datasets[0]} mlp seed 0 failed: no file" in capsys.readouterr().out
    assert grid.stored_runs("table", configs) == [None, done]


def test_lines_tell_runs_of_the_same_seed_apart(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = str(small_graph(tmp_path / "small.npz"))
    values: list[dict[str, Any]] = [
        {"epochs": 1},
        {"epochs": 2},
        {"epochs": 2, "lr": 0.5, "dropout": 0.25, "hidden_channels": 8, "beta": 0.2},
    ]
    configs = [resolve("lazygnn", dataset, each, device="cpu") for each in values]
    configs.append(resolve("lazygnn", dataset, {"epochs": 1}, seed=1, device="cpu"))
    grid.run_grid("table", configs, workers=0)
    lines = re.findall(r"^\[\d/4\] .* lazygnn seed (.*): val", capsys.readouterr().out, re.MULTILINE)
    assert lines == ["0", "0 (epochs=2)", "0 (hidden_channels=8, dropout=0.25, beta=0.2, ...)", "1"]


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "table.jsonl"
    grid.append(path, {"key": "a"})
    with path.open("a") as file:
        file.write('{"key": "b"')
    assert grid._read(path) == [{"key": "a"}]
    grid.append(path, {"key": "c"})
    assert grid._read(path) == [{"key": "a"}, {"key": "c"}]


def test_a_result_is_identified_by_the_options_that_change_it() -> None:
    def key(seed: int = 0, device: str = "cpu", **values: Any) -> str:
        return grid.key_of(resolve("lazygnn", "some", values, seed=seed, device=device))

    assert key() == key(device="cuda")
    assert key() == key(start="drift")
    assert len({key(), key(seed=1), key(beta=0.2), key(epochs=7)}) == 4


def test_the_log_of_a_run_is_stored_on_request(results: Path, tmp_path: Path) -> None:
    dataset = str(small_graph(tmp_path / "small.npz"))
    options = {"epochs": 5, "eval_every": 2, "diagnose_every": 3}
    (line,) = grid.run_grid("table", [resolve("lazygnn", dataset, options, device="cpu")], log="diagnosed")
    assert [entry["epoch"] for entry in line["log"]] == [2, 3, 4, 5]
    assert [entry["scores"] is not None for entry in line["log"]] == [True, False, True, True]
    assert line["log"][1]["laziness"].keys() >= {"fixed_point_error", "gradient_cosine"}
    (line,) = grid.run_grid(
        "other", [resolve("lazygnn", dataset, options | {"diagnose_every": 0}, device="cpu")], log="diagnosed"
    )
    assert "log" not in line


def test_a_condensed_log_counts_omitted_epochs_and_not_diagnostics() -> None:
    diagnostics = [None, None, {"error": 0.123456}, None, {"error": 0.5}]
    log = [
        {"epoch": epoch, "seconds": 2.0**epoch, "loss": 1.0, "scores": None, "laziness": found}
        for epoch, found in enumerate(diagnostics)
    ]
    kept = grid._condensed(log)
    # an epoch with diagnostics counts as much as the epoch before it
    assert [(line["epoch"], line["seconds"]) for line in kept] == [(2, 1.0 + 2.0 + 2.0), (4, 8.0 + 8.0)]
    assert kept[0]["laziness"] == {"error": 0.1235}


def test_stored_results_remain_valid_when_options_are_added() -> None:
    # keys of results in commit 683b80f
    assert grid.key_of(configure(EXACT, "arxiv", "none")) == "0eab07bda197cf44"
