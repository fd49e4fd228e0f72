import json
from pathlib import Path
from typing import Any

import pytest

from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.methods import read_config, resolve
from lazygnn.run.folder import CONFIG, RESULT, SEEDS, Run
from lazygnn.run.seeds import SeedRuns, describe_summary, mean_and_deviation, summarize


@pytest.fixture
def config() -> Config:
    return resolve("mlp", "cora", seed=3)


def result(seed: int, val: float | None, test: float | None) -> dict[str, Any]:
    trained = {"epochs": 10, "best_epoch": seed, "seconds_per_epoch": 0.1 * seed, "peak_memory_mib": 100.0 + seed}
    return {"method": "mlp", "dataset": "cora", "seed": seed, "metric": "accuracy", "val": val, "test": test} | trained


def test_the_folder_holds_consecutive_seeds_and_one_configuration(tmp_path: Path, config: Config) -> None:
    seeds = SeedRuns.create(tmp_path / "runs", config, 3)
    assert SeedRuns.is_at(tmp_path / "runs")
    assert not SeedRuns.is_at(tmp_path)
    assert seeds.seeds() == [3, 4, 5]
    assert seeds.config(5, read_config) == config.model_copy(update={"seed": 5})
    assert seeds.run_path(5) == tmp_path / "runs" / "seed-5"


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path, config: Config) -> None:
    SeedRuns.create(tmp_path / "runs", config, 2)
    with pytest.raises(ConfigError, match=r"`(.*)` exists and is not empty; resume it with .* --resume \1`, choose"):
        SeedRuns.create(tmp_path / "runs", config, 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"cannot read `.*seeds.json`"),
        ("{}", r"`.*seeds.json` was not written by lazygnn; give a folder that `train` wrote"),
        ('{"seeds": [0], "config": {"method": "mlp"}}', r"`.*seeds.json` does not hold a configuration: option"),
    ],
)
def test_a_corrupt_folder_is_a_checkpoint_error(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / SEEDS).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        SeedRuns(tmp_path).config(SeedRuns(tmp_path).seeds()[0], read_config)


def test_what_a_crash_left_of_a_start_is_removed(tmp_path: Path, config: Config) -> None:
    seeds = SeedRuns.create(tmp_path / "runs", config, 2)
    assert seeds.started(3) is None
    seeds.run_path(3).mkdir()
    (seeds.run_path(3) / f".{CONFIG}.part").touch()
    assert seeds.started(3) is None
    assert not seeds.run_path(3).exists()
    Run.create(seeds.run_path(3), config)
    started = seeds.started(3)
    assert started is not None
    assert started.path == seeds.run_path(3)


def test_the_folder_itself_is_not_a_run(tmp_path: Path, config: Config) -> None:
    seeds = SeedRuns.create(tmp_path / "runs", config, 2)
    Run.create(seeds.run_path(3), config)
    with pytest.raises(CheckpointError, match=r"holds the runs of several seeds; give one of them, such as `.*/seed-3"):
        Run.open(seeds.path)


def test_scores_have_a_mean_and_a_sample_deviation(tmp_path: Path, config: Config) -> None:
    summary = summarize([result(0, 0.5, None), result(1, 0.7, None), result(2, 0.9, None)], tmp_path)
    assert summary["seeds"] == [0, 1, 2]
    assert summary["val"] == pytest.approx(0.7)
    assert summary["val_deviation"] == pytest.approx(0.2)
    assert (summary["test"], summary["test_deviation"]) == (None, None)
    assert (summary["best_epoch"], summary["seconds_per_epoch"], summary["peak_memory_mib"]) == (1, 0.1, 102)
    assert describe_summary(summary) == "accuracy over 3 seeds: val 0.7000 ± 0.2000"
    seeds = SeedRuns.create(tmp_path / "runs", config, 3)
    seeds.save_result(summary)
    assert json.loads((seeds.path / RESULT).read_text()) == summary


def test_a_single_seed_has_no_deviation(tmp_path: Path) -> None:
    summary = summarize([result(0, 0.5, 0.25)], tmp_path)
    assert (summary["test"], summary["test_deviation"]) == (0.25, None)
    assert describe_summary(summary) == "accuracy over 1 seed: val 0.5000, test 0.2500"
    assert mean_and_deviation([]) == (None, None)
