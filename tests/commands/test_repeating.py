from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lazygnn import commands
from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import resolve
from lazygnn.run.folder import RESULT, Run
from lazygnn.run.saving import Interrupted
from lazygnn.run.seeds import SeedRuns

Configure = Callable[..., Config]


@pytest.fixture
def trained(dataset: Path, tmp_path: Path, configure: Configure) -> tuple[Path, dict[str, Any]]:
    """Three seeds, from 2 on."""
    config = configure(dataset, "mlp").model_copy(update={"seed": 2})
    return tmp_path / "runs", commands.train_seeds(config, 3, tmp_path / "runs", quiet=True)


def modified(path: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()}


def test_every_seed_is_the_run_that_it_is_alone(
    trained: tuple[Path, dict[str, Any]], dataset: Path, tmp_path: Path, configure: Configure
) -> None:
    path, summary = trained
    alone = [
        commands.train(
            configure(dataset, "mlp").model_copy(update={"seed": seed}), tmp_path / f"alone-{seed}", quiet=True
        )
        for seed in (2, 3, 4)
    ]
    assert summary["seeds"] == [2, 3, 4]
    assert summary["test"] == pytest.approx(sum(one["test"] for one in alone) / 3)
    assert [Run.open(path / f"seed-{one['seed']}").result()["val"] for one in alone] == [one["val"] for one in alone]
    assert summary["run"] == str(path)


def test_resuming_trains_what_has_not_ended(trained: tuple[Path, dict[str, Any]]) -> None:
    path, summary = trained
    before = modified(path / "seed-2")
    # the second seed stopped at its end, the third one before its start
    (path / "seed-3" / RESULT).unlink()
    (path / "seed-4").rename(path.parent / "away")
    (path / RESULT).unlink()
    told: list[int] = []
    again = commands.resume_seeds(path, device="cpu", quiet=True, tell=lambda result: told.append(result["seed"]))
    for key in ("val", "val_deviation", "test", "test_deviation", "best_epoch", "seeds"):
        assert again[key] == summary[key]
    assert told == [2, 3, 4]
    assert modified(path / "seed-2") == before
    assert Run.open(path / "seed-4").has_ended()


def test_an_interruption_names_the_folder_of_all_seeds(
    dataset: Path, tmp_path: Path, configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = commands.train

    def stop_at_the_second(config: Config, out: Path, **rest: Any) -> dict[str, Any]:
        if config.seed == 1:
            raise Interrupted(15, out)
        return real(config, out, **rest)

    monkeypatch.setattr("lazygnn.commands.repeating.train", stop_at_the_second)
    with pytest.raises(Interrupted, match=r"resume it with `lazygnn train --resume .*/runs`$"):
        commands.train_seeds(configure(dataset, "mlp"), 3, tmp_path / "runs", quiet=True)
    monkeypatch.undo()
    assert commands.resume_seeds(tmp_path / "runs", quiet=True)["seeds"] == [0, 1, 2]


def test_seeds_that_cannot_start_leave_no_folder(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    with pytest.raises(ConfigError, match=r"metric `r2` does not fit a single-label task"):
        commands.train_seeds(configure(dataset, metric="r2"), 2, tmp_path / "runs", quiet=True)
    with pytest.raises(ConfigError, match=r"`seeds` is 0; give the number of seeds, at least 1"):
        commands.train_seeds(configure(dataset), 0, tmp_path / "runs", quiet=True)
    with pytest.raises(ConfigError, match=r"`num_seeds` is \[0, 1\], of type list; give a whole number"):
        commands.train_seeds(configure(dataset), [0, 1], tmp_path / "runs", quiet=True)  # type: ignore[arg-type]
    assert not (tmp_path / "runs").exists()


def test_a_configuration_made_without_the_graph_is_warned_of_once(
    dataset: Path, tmp_path: Path, block_graph: Graph, configure: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    def times_warned() -> int:
        return sum("`resolve` was called without the graph" in message for message in caplog.messages)

    commands.train_seeds(configure(dataset, "mlp"), 2, tmp_path / "runs", quiet=True)
    assert times_warned() == 1
    fitted = resolve("mlp", dataset, {"epochs": 3}, graph=block_graph, device="cpu")
    commands.train_seeds(fitted, 2, tmp_path / "fitted", graph=block_graph, quiet=True)
    (tmp_path / "runs" / "seed-1").rename(tmp_path / "away")
    commands.resume_seeds(tmp_path / "runs", quiet=True)
    assert times_warned() == 1


def test_a_folder_without_seeds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no `seeds.json`; give a folder that `train --seeds` wrote"):
        commands.resume_seeds(tmp_path)


def test_the_default_folder_is_named_after_the_seeds(dataset: Path, configure: Configure) -> None:
    names = [commands.train_seeds(configure(dataset, "mlp", epochs=0), 1, quiet=True)["run"] for _ in range(2)]
    assert names == ["runs/block-mlp-seeds", "runs/block-mlp-seeds-2"]
    assert SeedRuns.is_at(Path(names[0]))
