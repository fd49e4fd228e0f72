from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lazygnn import commands
from lazygnn.config import Config
from lazygnn.errors import ConfigError
from lazygnn.methods import read_config
from lazygnn.run.claim import INITIAL
from lazygnn.run.folder import CHECKPOINTS, RESULT, WEIGHTS, Run

Configure = Callable[..., Config]


@pytest.fixture
def earlier(dataset: Path, tmp_path: Path, configure: Configure) -> Path:
    commands.train(configure(dataset, epochs=40, lr=0.05, norm="batch"), tmp_path / "earlier", quiet=True)
    return tmp_path / "earlier"


def test_a_new_run_starts_from_the_best_weights_with_the_same_options(earlier: Path, tmp_path: Path) -> None:
    before = Run.open(earlier).result()
    # without a step, it is the earlier run
    same = commands.fine_tune(earlier, {"epochs": 0}, tmp_path / "same", device="cpu", quiet=True)
    assert (same["val"], same["test"]) == (before["val"], before["test"])
    weights = Run.open(tmp_path / "same").load_weights()
    assert all(torch.equal(value, weights[name]) for name, value in Run.open(earlier).load_weights().items())
    tuned = commands.fine_tune(earlier, {"epochs": 2, "lr": 0.001}, tmp_path / "tuned", device="cpu", quiet=True)
    assert abs(tuned["val"] - before["val"]) < 0.1
    config = Run.open(tmp_path / "tuned").config(read_config)
    assert (config.trainer.lr, config.trainer.epochs, config.model.model_dump()["norm"]) == (0.001, 2, "batch")


def test_another_method_and_graph_with_the_same_layers(
    earlier: Path, tmp_path: Path, block_arrays: dict[str, Any]
) -> None:
    np.savez("other.npz", **block_arrays | {"x": block_arrays["x"] + 0.1})
    found = commands.fine_tune(
        earlier, {"epochs": 1}, tmp_path / "run", method="appnp", dataset="other.npz", device="cpu", quiet=True
    )
    assert (found["method"], Path(found["dataset"]).name) == ("appnp", "other.npz")
    assert found["test"] > 0.6


def test_a_run_that_is_resumed_before_its_first_checkpoint_starts_from_the_same_weights(
    earlier: Path, tmp_path: Path
) -> None:
    straight = commands.fine_tune(earlier, {"epochs": 3}, tmp_path / "run", device="cpu", quiet=True)
    weights = {name: value.clone() for name, value in Run.open(tmp_path / "run").load_weights().items()}
    for path in (tmp_path / "run" / CHECKPOINTS).iterdir():
        path.unlink()
    (tmp_path / "run" / RESULT).unlink()
    (tmp_path / "run" / WEIGHTS).unlink()
    assert (tmp_path / "run" / INITIAL).is_file()
    again = commands.resume(tmp_path / "run", quiet=True)
    assert again["val"] == straight["val"]
    assert all(torch.equal(value, weights[name]) for name, value in Run.open(tmp_path / "run").load_weights().items())


def test_a_graph_with_other_classes_is_refused(
    tmp_path: Path, block_arrays: dict[str, Any], configure: Configure
) -> None:
    for name, classes in (("first", "abc"), ("other", "bac"), ("same", "abc")):
        np.savez(tmp_path / f"{name}.npz", **block_arrays, class_name=np.array(list(classes)))
    np.savez(tmp_path / "unnamed.npz", **block_arrays)
    commands.train(configure(tmp_path / "first.npz", epochs=2), tmp_path / "first", quiet=True)

    def tune(name: str) -> None:
        data = str(tmp_path / f"{name}.npz")
        commands.fine_tune(tmp_path / "first", {"epochs": 1}, tmp_path / name, dataset=data, device="cpu", quiet=True)

    with pytest.raises(ConfigError, match=r"has the classes b, a, c, run `.*first` was trained on a, b, c; give the"):
        tune("other")
    assert not (tmp_path / "other").exists()
    tune("same")
    tune("unnamed")


def test_weights_of_other_layers_are_refused(earlier: Path, tmp_path: Path) -> None:
    for values, method in (({"hidden_channels": 9}, None), ({}, "gcn")):
        with pytest.raises(ConfigError, match=r"the weights of `--init-from` do not fit this model: .*; use a"):
            commands.fine_tune(earlier, values, tmp_path / "run", method=method, device="cpu", quiet=True)
    with pytest.raises(ConfigError, match="unknown option `alhpa`"):
        commands.fine_tune(earlier, {"alhpa": 1}, tmp_path / "run", device="cpu", quiet=True)
    assert not (tmp_path / "run").exists()
