import logging
import os
from pathlib import Path
from typing import Any

import pytest

from lazygnn.commands.run_folders import earlier_folders, extended, left_unchanged, new_folder, remove_leftovers
from lazygnn.errors import ConfigError
from lazygnn.methods import resolve
from lazygnn.run.folder import CHECKPOINTS, Run
from lazygnn.run.lock import locked


def ended(path: Path, **values: Any) -> Run:
    """Makes the folder of a run that has ended and has left checkpoints."""
    run = Run.create(path, resolve("mlp", "cora", values))
    run.save_result({"val": 0.5, "run": "elsewhere"})
    (path / CHECKPOINTS).mkdir()
    return run


def test_a_new_folder_is_named_after_the_run_and_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = resolve("mlp", "cora")
    assert [str(new_folder(config, "3")) for _ in range(2)] == ["runs/cora-mlp-3", "runs/cora-mlp-3-2"]


def test_earlier_folders_of_a_name_are_found_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = resolve("mlp", "cora")
    assert earlier_folders(config, "1") == []
    runs = [Run.create(new_folder(config, ending), config).path for ending in ("1", "1", "10", "1-seeds", "1")]
    for age, path in enumerate(runs):
        os.utime(path / "config.json", (1000 - age, 1000 - age))
    # one that was not begun
    new_folder(config, "1")
    assert earlier_folders(config, "1") == [runs[0], runs[1], runs[4]]


def test_a_run_may_get_more_epochs_if_it_could_have_started_with_them(tmp_path: Path) -> None:
    config = resolve("mlp", "cora", {"epochs": 20, "eval_every": 5})
    longer = extended(config, 30, tmp_path)
    assert longer == resolve("mlp", "cora", {"epochs": 30, "eval_every": 5})


@pytest.mark.parametrize(
    ("values", "epochs", "message"),
    [
        ({}, 19, r"`epochs` is 19, but run `.*` has 20 already; give more"),
        (
            {"schedule": "cosine"},
            30,
            r"ends with its 20 epochs \(`schedule` is cosine\), so it cannot go on; start from",
        ),
        (
            {"eval_every": 3},
            30,
            r"was evaluated at its end, after 20 epochs, where a longer run with `eval_every=3` is",
        ),
    ],
)
def test_other_runs_are_not_extended(values: dict[str, Any], epochs: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        extended(resolve("mlp", "cora", {"epochs": 20} | values), epochs, tmp_path)


def test_a_run_that_has_ended_returns_its_result(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "run"
    with caplog.at_level(logging.WARNING):
        assert left_unchanged(ended(path)) == {"val": 0.5, "run": str(path)}
    assert caplog.messages == [f"run `{path}` has ended and is left unchanged; to train again, choose another `--out`"]


@pytest.mark.parametrize("kept", [False, True])
def test_checkpoints_that_a_crash_has_left_are_removed_unless_they_are_kept(kept: bool, tmp_path: Path) -> None:
    remove_leftovers(ended(tmp_path / "run", keep_checkpoint=kept))
    assert (tmp_path / "run" / CHECKPOINTS).exists() is kept


def test_a_folder_that_another_process_holds_is_left_as_it_is(tmp_path: Path) -> None:
    run = ended(tmp_path / "run", keep_checkpoint=False)
    with locked(run.path):
        remove_leftovers(run)
    assert (run.path / CHECKPOINTS).exists()
