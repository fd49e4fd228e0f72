"""The grid that fills tables: it keeps every result and goes on where it was."""

import importlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lazygnn.config import Config
from lazygnn.errors import GraphError
from lazygnn.methods import read_config, resolve

ROOT = Path(__file__).parents[1]


@pytest.fixture
def grid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(str(ROOT))
    module = importlib.import_module("experiments.grid")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    return module


def small_graph(path: Path) -> Path:
    rng = np.random.default_rng(0)
    split = rng.integers(0, 3, 60)
    masks = {f"{name}_mask": split == index for index, name in enumerate(("train", "val", "test"))}
    np.savez(
        path, edge_index=rng.integers(0, 60, (2, 150)), x=rng.normal(size=(60, 3)), y=rng.integers(0, 2, 60), **masks
    )
    return path


def test_a_grid_trains_what_is_missing_and_no_more(
    grid: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = str(small_graph(tmp_path / "small.npz"))
    configs = [resolve("mlp", dataset, {"epochs": 2}, seed=seed, device="cpu") for seed in range(2)]
    first = grid.run_grid("table", configs[:1])
    both = grid.run_grid("table", configs)
    assert "1 of 2 runs are known; 1 to go" in capsys.readouterr().out
    assert both[0] == first[0]
    assert [line["seed"] for line in both] == [0, 1]
    assert grid.run_grid("table", configs) == both
    assert "2 of 2 runs are known; 0 to go" in capsys.readouterr().out
    lines = [json.loads(line) for line in (tmp_path / "results" / "table.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        assert {"commit", "date", "machine", "torch", "config", "val", "test", "seconds_per_epoch"} <= line.keys()
        assert "root" not in line["config"]


def workers_of(pid: int) -> list[int]:
    """The processes that `pid` has started to work for it."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            started_by = re.search(r"^PPid:\s+(\d+)$", status.read_text(), re.MULTILINE)
            if started_by and int(started_by[1]) == pid and b"spawn_main" in (status.parent / "cmdline").read_bytes():
                found.append(int(status.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="processes are found in /proc")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_grid_that_is_stopped_leaves_no_workers_behind(tmp_path: Path, signum: signal.Signals) -> None:
    dataset = small_graph(tmp_path / "small.npz")
    script = f"""
from pathlib import Path
from experiments import grid
from experiments.ending import end_cleanly
from lazygnn.methods import resolve
if __name__ == "__main__":
    end_cleanly()
    grid.RESULTS = Path({str(tmp_path)!r})
    grid.run_grid("table", [resolve("mlp", {str(dataset)!r}, {{"epochs": 10**7}}, device="cpu")])
"""
    (tmp_path / "stopped.py").write_text(script)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, tmp_path / "stopped.py"], env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    # the run folder appears when training starts
    while not list(tmp_path.glob("*/*/run/log.jsonl")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    workers = workers_of(process.pid)
    assert workers
    process.send_signal(signum)
    # what cannot be caught leaves its folders
    caught = signum == signal.SIGTERM
    assert process.wait(timeout=60) == (128 + signum if caught else -signum)
    assert bool(list(tmp_path.glob("*/*/run"))) != caught
    while any(Path(f"/proc/{worker}").is_dir() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_first_run_that_fails_ends_the_grid(grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    datasets = str(small_graph(tmp_path / "small.npz")), str(tmp_path / "gone.npz")
    configs = [resolve("mlp", dataset, {"epochs": 10**7}, device="cpu") for dataset in datasets]
    with pytest.raises(GraphError, match=r"^no file `.*gone.npz`"):
        grid.run_grid("table", configs, workers=2)
    assert not multiprocessing.active_children()
    assert [path.name for path in tmp_path.iterdir()] == ["small.npz"]


def invoke(*words: object) -> Any:
    return CliRunner().invoke(importlib.import_module("experiments.cli").app, list(map(str, words)))


def test_a_missing_data_set_is_one_line_and_a_status(grid: Any, tmp_path: Path) -> None:
    part = ("--dataset", "wordnet", "--case", "exact, 2 steps", "--seeds", 3)
    done = invoke("staleness", *part, "--root", tmp_path, "--device", "cpu", "--workers", 2)
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: unknown data set `wordnet`: no file `{tmp_path / 'wordnet.npz'}`")
    assert not grid.RESULTS.exists()


def test_an_unknown_method_is_one_line_and_a_status(grid: Any) -> None:
    done = invoke("planetoid", "gnc")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: unknown method `gnc`; ")


@pytest.mark.parametrize("option", ["--seeds", "--workers"])
def test_no_seeds_and_no_workers_are_refused(grid: Any, option: str) -> None:
    done = invoke("staleness", option, 0)
    assert done.exit_code == 2
    assert f"Invalid value for '{option}'" in done.stderr


def test_a_result_is_known_by_what_changes_it(grid: Any) -> None:
    def key(seed: int = 0, device: str = "cpu", **values: Any) -> str:
        config: Config = resolve("lazygnn", "some", values, seed=seed, device=device)
        found: str = grid._key(config)
        return found

    assert key() == key(device="cuda")
    assert key() == key(start="drift")
    assert len({key(), key(seed=1), key(beta=0.2), key(epochs=7)}) == 4


def test_tables(grid: Any) -> None:
    assert grid.mean_and_deviation([0.8, 0.82]) == "81.00 ± 1.41"
    assert grid.mean_and_deviation([0.8]) == "80.00 ± 0.00"
    assert grid.markdown(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_every_kept_result_is_still_known_to_its_table(grid: Any) -> None:
    assert "experiments.grid" in sys.modules
    for file in (ROOT / "experiments" / "results").glob("*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            assert grid._key(read_config(line["config"])) == line["key"], file.name


def test_the_log_of_a_run_is_kept_where_asked(grid: Any, tmp_path: Path) -> None:
    dataset = str(small_graph(tmp_path / "small.npz"))
    options = {"epochs": 5, "eval_every": 2, "diagnose_every": 3}
    (line,) = grid.run_grid("table", [resolve("lazygnn", dataset, options, device="cpu")], keep_log=True)
    assert [entry["epoch"] for entry in line["log"]] == [2, 3, 4, 5]
    assert [entry["scores"] is not None for entry in line["log"]] == [True, False, True, True]
    assert line["log"][1]["laziness"].keys() >= {"fixed_point_error", "gradient_cosine"}
    (line,) = grid.run_grid(
        "other", [resolve("lazygnn", dataset, options | {"diagnose_every": 0}, device="cpu")], keep_log=True
    )
    assert "log" not in line


def test_the_time_of_what_a_log_leaves_out_is_counted_in_what_comes_after_and_that_of_looks_is_not(grid: Any) -> None:
    looks = [None, None, {"error": 0.123456}, None, {"error": 0.5}]
    log = [
        {"epoch": epoch, "seconds": 2.0**epoch, "loss": 1.0, "scores": None, "laziness": look}
        for epoch, look in enumerate(looks)
    ]
    kept = grid._looked_at(log)
    # an epoch that was looked at takes what the one before it took
    assert [(line["epoch"], line["seconds"]) for line in kept] == [(2, 1.0 + 2.0 + 2.0), (4, 8.0 + 8.0)]
    assert kept[0]["laziness"] == {"error": 0.1235}


def test_the_staleness_table_is_filled_and_drawn(
    grid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    staleness = importlib.import_module("experiments.staleness")
    monkeypatch.setattr(staleness, "PICTURE", tmp_path / "images" / "picture.png")
    monkeypatch.setattr(staleness, "RECIPE", staleness.RECIPE | {"epochs": 20, "hidden_channels": 8})
    dataset = str(small_graph(tmp_path / "small.npz"))
    cases = ["exact, 10 steps", "fitted to 0.9, 2 steps"]
    staleness.main(1, cases, [dataset], "batch", None, "cpu", 1)
    assert not (tmp_path / "images").exists()
    capsys.readouterr()
    monkeypatch.setattr(staleness, "DRAWN", cases)
    staleness.main(2, cases, [dataset], "batch", None, "cpu", 1)
    out = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in out if line.startswith("| ")][2:4] == [f"| {case}" for case in cases]
    assert [line.split(" | ")[0] for line in out if "minus exact" in line or line.startswith(f"| {cases[1]}")] == [
        f"| {cases[1]}",
        "| case, minus exact / spread, of that of exact",
        f"| {cases[1]}",
        f"| {cases[1]}",
        f"| {cases[1]}",
    ]
    assert (tmp_path / "images" / "picture.png").stat().st_size > 1000


def test_a_case_is_held_against_another(grid: Any) -> None:
    assert grid.RESULTS
    against = importlib.import_module("experiments.staleness").against
    # deviations of 2 and 1 percent, and of none
    wide, narrow, same = [0.78, 0.80, 0.82], [0.78, 0.79, 0.80], [0.9, 0.9, 0.9]
    assert against([wide, same], [narrow, same]) == ["+1.00 ± 1.29 / 2.00", "+0.00 ± 0.00 / -", "+0.50 ± 0.65"]
    assert against([narrow], [wide]) == ["-1.00 ± 1.29 / 0.50", "-1.00 ± 1.29"]


def test_cases_are_held_against_each_other_at_the_time_of_the_fastest(grid: Any) -> None:
    assert grid.RESULTS
    at_equal_time = importlib.import_module("experiments.staleness").at_equal_time

    def log(step: float, *scores: float | None) -> list[dict[str, Any]]:
        # the first line compiles, and its time does not count
        return [{"seconds": 9.0 if at == 0 else step, "scores": v and {"val": v}} for at, v in enumerate(scores)]

    def run(log: list[dict[str, Any]], **setting: Any) -> dict[str, Any]:
        return {"machine": "a GPU", "commit": "abc", "epochs": 40, "log": log} | setting

    fast, slow = run(log(1.0, 0.5, 0.6, 0.7, 0.65)), run(log(2.0, 0.4, 0.8, None, 0.9))
    assert at_equal_time([fast, slow]) == ["70.00 (3.00)", "80.00 (6.00)"]
    assert at_equal_time([fast, run(log(2.0, None, None, 0.9))]) == ["70.00 (3.00)", "- (4.00)"]
    # times that cannot be compared have no cell, nor has a run without a log
    others: list[dict[str, Any]] = [{"machine": "a CPU"}, {"commit": "def"}, {"epochs": 20}, {"log": []}]
    for other in others:
        assert at_equal_time([fast, slow | other]) == ["70.00 (3.00)", "-"]
    assert at_equal_time([fast | {"log": []}, slow]) == ["-", "90.00 (6.00)"]


def test_no_case_of_staleness_depends_on_the_graph(grid: Any) -> None:
    assert grid.RESULTS
    staleness = importlib.import_module("experiments.staleness")
    for case in staleness.CASES:
        found = {name: staleness.configure(case, name, "batch") for name in staleness.DATASETS}
        models = [config.model.model_copy(update={"normalize_features": None}) for config in found.values()]
        assert all(model == models[0] for model in models)
        assert all(config.trainer == found["arxiv"].trainer for config in found.values())


def test_the_norm_of_a_staleness_table_brings_its_learning_rate_and_a_case_may_have_its_own(grid: Any) -> None:
    assert grid.RESULTS
    staleness = importlib.import_module("experiments.staleness")

    def rate(case: str, norm: str) -> tuple[str, float]:
        config = staleness.configure(case, "cora", norm)
        return config.model.model_dump()["norm"], config.trainer.lr

    assert rate("exact, 10 steps", "none") == ("none", 0.01)
    assert rate("exact, 10 steps", "batch") == ("batch", 0.005)
    assert rate("the paper: mix 0.5, 2 steps, rate 0.002", "none") == ("none", 0.002)


def test_a_look_shows_what_there_is(grid: Any) -> None:
    assert grid.RESULTS
    look = importlib.import_module("experiments.staleness")._look
    full = {"laziness": {"fixed_point_error": 0.123, "gradient_cosine": 0.987, "gradient_length": 1.1}}
    assert look([{"laziness": None}, full]) == "0.12 / 0.99 / 1.10"
    # parts are differentiated one by one
    assert look([full, {"laziness": {"fixed_point_error": 0.05}}]) == "0.05 / - / -"
    assert look([{"laziness": None}]) == "-"
    assert look([]) == "-"
