"""An interrupted training ends exactly like an uninterrupted one, however it was stopped.

Every method is resumed in `test_every_method.py`; the files of a checkpoint are tested in `tests/run`.
"""

import json
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lazygnn.config import TrainerOptions
from lazygnn.data import load_graph
from lazygnn.errors import CheckpointError
from lazygnn.methods import METHODS, build, resolve
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.folder import CHECKPOINTS, WEIGHTS, Run
from lazygnn.training.trainer import EpochReport, Trainer
from tests.processes import start_command

SETTINGS: dict[str, Any] = {
    "num_parts": 5,
    "parts_per_batch": 2,
    "partition": "random",
    "hidden_channels": 8,
    "norm": "batch",
    "epochs": 6,
    "diagnose_every": 2,
    "checkpoint_every": 1,
    "beta": 0.1,
    "gamma": 0.5,
}
TIERS = ("device", "host", "disk")
# the method and the tier of each training
TRAININGS = {**{tier: ("lazygnn", tier) for tier in TIERS}, "deep": ("lazygnn-deep", "disk")}
DEEP: dict[str, Any] = {"num_blocks": 2, "alphas": [0.1, -0.5], "view_channels": 5}


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    num_nodes = 300
    y = rng.integers(0, 4, num_nodes)
    edges = rng.integers(0, num_nodes, (2, 4000))
    edges = edges[:, y[edges[0]] == y[edges[1]]]
    split = rng.integers(0, 3, num_nodes)
    path = tmp_path_factory.mktemp("graph") / "small.npz"
    masks = {f"{name}_mask": split == index for index, name in enumerate(("train", "val", "test"))}
    np.savez(path, edge_index=edges, x=rng.normal(size=(num_nodes, 6)) + np.eye(6)[y], y=y, **masks)
    return path


class StopHere(Exception):
    pass


def make_trainer(graph_file: Path, settings: dict[str, Any], folder: Path, method: str = "lazygnn") -> Trainer:
    torch.manual_seed(0)
    known = METHODS[method].options.model_fields.keys() | TrainerOptions.model_fields.keys()
    config = resolve(method, str(graph_file), {name: value for name, value in settings.items() if name in known})
    built = build(config, load_graph(graph_file), folder=folder)
    return Trainer(built.model, built.loader, built.graph, config.trainer)


def comparable(report: EpochReport) -> tuple[Any, ...]:
    return report.epoch, report.loss, report.lr, report.scores, report.laziness


def final_state(trainer: Trainer) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in trainer.checkpoint()[0].items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@dataclass(frozen=True)
class Straight:
    """A training without interruption: its final state and its reports."""

    state: dict[str, Tensor]
    reports: list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def straight(graph_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Straight]:
    """One uninterrupted training with each kind of history, and one of the deep model."""
    trainings = {}
    for name, (method, tier) in TRAININGS.items():
        reports: list[EpochReport] = []
        settings = SETTINGS | DEEP | {"history": tier}
        trainer = make_trainer(graph_file, settings, tmp_path_factory.mktemp(name), method)
        trainer.on_epoch = reports.append
        trainer.run()
        trainings[name] = Straight(final_state(trainer), [comparable(report) for report in reports])
    return trainings


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("stop_after", [1, 3, 8, 17])
def test_stopping_after_any_batch_changes_nothing(
    graph_file: Path, tmp_path: Path, straight: dict[str, Straight], name: str, stop_after: int
) -> None:
    method, tier = TRAININGS[name]
    settings = SETTINGS | DEEP | {"history": tier}
    reports: list[EpochReport] = []
    first = make_trainer(graph_file, settings, tmp_path / "first", method)
    first.on_epoch = reports.append
    folder = CheckpointFolder(tmp_path / "checkpoints")

    def stop(trainer: Trainer) -> None:
        if trainer.num_batches == stop_after:
            folder.save(trainer.num_batches, *trainer.checkpoint())
            raise StopHere

    first.on_batch = stop
    with pytest.raises(StopHere):
        first.run()
    second = make_trainer(graph_file, settings, tmp_path / "second", method)
    second.on_epoch = reports.append
    saved = folder.load_latest()
    assert saved is not None
    second.restore(saved.tensors, saved.state)
    second.run()
    assert_same(straight[name].state, final_state(second))
    assert [comparable(report) for report in reports] == straight[name].reports


def test_the_three_tiers_train_alike_bit_for_bit(straight: dict[str, Straight]) -> None:
    for tier in ("host", "disk"):
        assert_same(straight["device"].state, straight[tier].state)


@pytest.mark.parametrize(("method", "options"), [("lazygnn", {"label_step": False}), ("lazygnn-deep", DEEP)])
def test_one_part_trains_like_full_batch_bit_for_bit(graph_file: Path, method: str, options: dict[str, Any]) -> None:
    from lazygnn.loader import ClusterLoader

    def run(one_part: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        config = resolve(method, str(graph_file), {"epochs": 5, "hidden_channels": 8, "norm": "batch", **options})
        built = build(config, load_graph(graph_file))
        ptr = torch.tensor([0, built.graph.num_nodes])
        loader = ClusterLoader(built.graph, ptr, 2) if one_part else built.loader
        trainer = Trainer(built.model, loader, built.graph, config.trainer)
        trainer.run()
        return final_state(trainer)

    assert_same(run(one_part=True), run(one_part=False))


def test_a_checkpoint_of_another_configuration_is_refused(graph_file: Path, tmp_path: Path) -> None:
    small = make_trainer(graph_file, SETTINGS, tmp_path / "a")
    other = make_trainer(graph_file, SETTINGS | {"hidden_channels": 9}, tmp_path / "b")
    with pytest.raises(CheckpointError, match="does not fit this configuration"):
        other.restore(*small.checkpoint())


def start(graph_file: Path, run: Path, epochs: int) -> list[str]:
    settings = SETTINGS | {"epochs": epochs, "history": "disk"}
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return ["train", "lazygnn", str(graph_file), "--out", str(run), "--quiet", "--device", "cpu", *pairs]


def outcome(run: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
    saved = CheckpointFolder(run / CHECKPOINTS).load_latest()
    assert saved is not None
    log = [{key: value for key, value in line.items() if key != "seconds"} for line in Run.open(run).log.read()]
    return load_file(run / WEIGHTS), saved.tensors, log


def kill_and_resume(graph_file: Path, folder: Path, kills: int, epochs: int, seed: int) -> None:
    environment = {"LAZYGNN_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    straight, killed, printed = folder / "straight", folder / "killed", folder / "printed"

    def finish(arguments: list[str]) -> None:
        process = start_command(arguments, printed, environment)
        process.join()
        assert process.exitcode == 0, printed.read_text()

    finish(start(graph_file, straight, epochs))
    rng = random.Random(seed)
    arguments = start(graph_file, killed, epochs)
    landed = 0
    for _ in range(kills):
        process = start_command(arguments, printed, environment)
        # wait until training is under way, then strike at a random moment
        deadline = time.monotonic() + 60
        seen = _latest(killed)
        while process.is_alive() and _latest(killed) == seen and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.5))
        landed += process.is_alive()
        process.kill()
        process.join()
        arguments = ["train", "--resume", str(killed), "--quiet"]
    assert landed > 0, "training was over before the first kill; make it longer"
    finish(arguments)
    result = json.loads(printed.read_text().splitlines()[-1])
    expected = json.loads((straight / "result.json").read_text())
    for key in ("val", "test", "epochs", "best_epoch"):
        assert result[key] == expected[key]
    for one, other in zip(outcome(straight), outcome(killed), strict=True):
        if isinstance(one, dict) and isinstance(other, dict):
            assert_same(one, other)
        else:
            assert one == other


def _latest(run: Path) -> str:
    return max((path.name for path in (run / CHECKPOINTS).glob("*.json")), default="")


def test_three_kills_leave_no_trace(graph_file: Path, tmp_path: Path) -> None:
    kill_and_resume(graph_file, tmp_path, kills=3, epochs=20, seed=0)


@pytest.mark.soak
def test_twenty_kills_leave_no_trace(graph_file: Path, tmp_path: Path) -> None:
    kill_and_resume(graph_file, tmp_path, kills=20, epochs=300, seed=1)


def test_sigterm_saves_and_prints_how_to_resume(graph_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = [*start(graph_file, run, 100_000), "--set", "checkpoint_every=none", "--set", "diagnose_every=0"]
    printed = tmp_path / "printed"
    process = start_command(arguments, printed, {"OMP_NUM_THREADS": "1"})
    while not (run / "log.jsonl").exists():
        time.sleep(0.01)
        assert process.is_alive()
    process.terminate()
    process.join(timeout=60)
    assert process.exitcode == 128 + signal.SIGTERM
    assert f"stopped by SIGTERM; the run is saved, resume it with `lazygnn train --resume {run}`" in printed.read_text()
    saved = CheckpointFolder(run / CHECKPOINTS).load_latest()
    assert saved is not None
    assert saved.number > 0
