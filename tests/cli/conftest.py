"""The command line in this process, a data set, and a run that tests read."""

import sys
from pathlib import Path

import numpy as np
import pytest

from lazygnn import commands
from lazygnn.cli import main
from lazygnn.methods import resolve
from tests.cli.helpers import Arrays, Command, Done


@pytest.fixture
def lazygnn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*args: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["lazygnn", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return Done(stop.value.code, out, err)

    return call


@pytest.fixture
def dataset(tmp_path: Path, block_arrays: Arrays) -> Path:
    path = tmp_path / "block.npz"
    np.savez(path, **block_arrays)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, module_arrays: Arrays) -> Path:
    """A run that tests read and do not change, on a graph with names."""
    folder = tmp_path_factory.mktemp("cli")
    named = {"node_ids": np.array([f"n{i}" for i in range(60)]), "class_name": np.array(["ant", "bee", "cat"])}
    np.savez(folder / "named.npz", **module_arrays | named)
    config = resolve("lazygnn", str(folder / "named.npz"), {"epochs": 4, "hidden_channels": 8}, device="cpu")
    commands.train(config, folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture
def broken(trained: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be damaged."""
    copy = tmp_path / "broken"
    copy.mkdir()
    for path in trained.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    return copy
