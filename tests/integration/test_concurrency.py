"""Several processes at once: one for each folder, and a folder for each."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.run.folder import Run
from tests.processes import start_command

ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def arguments(tmp_path: Path, block_arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "block.npz", **block_arrays)
    options = [part for pair in ("epochs=150", "hidden_channels=8") for part in ("--set", pair)]
    return ["train", "mlp", str(tmp_path / "block.npz"), "--quiet", "--device", "cpu", *options]


def finish(starts: list[list[str]], tmp_path: Path) -> list[tuple[int | None, str]]:
    """Runs commands at once; returns the exit status of each and what it printed."""
    printed = [tmp_path / f"printed-{index}" for index in range(len(starts))]
    processes = [start_command(one, out, ENVIRONMENT) for one, out in zip(starts, printed, strict=True)]
    for process in processes:
        process.join()
    return [(process.exitcode, out.read_text()) for process, out in zip(processes, printed, strict=True)]


def test_starts_without_a_folder_get_one_each(arguments: list[str], tmp_path: Path) -> None:
    for status, text in finish([arguments] * 3, tmp_path):
        assert status == 0, text
    runs = sorted((tmp_path / "runs").iterdir())
    assert [path.name for path in runs] == ["block-mlp-0", "block-mlp-0-2", "block-mlp-0-3"]
    assert len({Run.open(path).result()["test"] for path in runs}) == 1
    assert [len(Run.open(path).log.read()) for path in runs] == [150] * 3


def test_one_of_several_starts_into_a_folder_trains(arguments: list[str], tmp_path: Path) -> None:
    found = finish([[*arguments, "--out", "run"]] * 3, tmp_path)
    assert sorted(status or 0 for status, _ in found) == [0, 2, 2]
    for status, text in found:
        if status == 2:
            # those that come late find a run that has ended
            assert "is in use by process" in text or "exists and is not empty" in text
            assert text.count("\n") == 1
    assert len(Run.open(tmp_path / "run").log.read()) == 150
