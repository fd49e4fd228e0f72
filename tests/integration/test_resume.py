"""A training that stops after any batch ends exactly like an uninterrupted one.

Processes are stopped in `test_kills.py`; every method is resumed in `test_every_method.py`. Files of checkpoints are
tested in `tests/run`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.config import TrainerOptions
from lazygnn.data import load_graph
from lazygnn.errors import CheckpointError
from lazygnn.methods import METHODS, build, resolve
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.training.trainer import EpochReport, Trainer
from tests.setups import write_graph

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
DEEP: dict[str, Any] = {"num_blocks": 2, "alphas": [0.1, -0.5], "view_channels": 5, "label_input": 0.25}


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "small.npz"
    write_graph(path)
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


def resumed(graph_file: Path, folder: Path, settings: dict[str, Any], method: str, stop_after: int) -> Straight:
    """Trains, stops after a batch, and trains on from a checkpoint."""
    reports: list[EpochReport] = []
    first = make_trainer(graph_file, settings, folder / "first", method)
    first.on_epoch = reports.append
    checkpoints = CheckpointFolder(folder / "checkpoints")

    def stop(trainer: Trainer) -> None:
        if trainer.num_batches == stop_after:
            checkpoints.save(trainer.num_batches, *trainer.checkpoint())
            raise StopHere

    first.on_batch = stop
    with pytest.raises(StopHere):
        first.run()
    second = make_trainer(graph_file, settings, folder / "second", method)
    second.on_epoch = reports.append
    saved = checkpoints.load_latest()
    assert saved is not None
    second.restore(saved.tensors, saved.state)
    second.run()
    return Straight(final_state(second), [comparable(report) for report in reports])


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("stop_after", [1, 3, 8, 17])
def test_stopping_after_any_batch_changes_nothing(
    graph_file: Path, tmp_path: Path, straight: dict[str, Straight], name: str, stop_after: int
) -> None:
    method, tier = TRAININGS[name]
    found = resumed(graph_file, tmp_path, SETTINGS | DEEP | {"history": tier}, method, stop_after)
    assert_same(straight[name].state, found.state)
    assert found.reports == straight[name].reports


def test_stopping_between_a_gradient_and_its_diagnosis_changes_nothing(graph_file: Path, tmp_path: Path) -> None:
    settings = {"epochs": 3, "diagnose_every": 2, "hidden_channels": 8}
    trainer, reports = make_trainer(graph_file, settings, tmp_path / "straight"), list[EpochReport]()
    trainer.on_epoch = reports.append
    trainer.run()
    assert reports[1].laziness is not None
    assert "gradient_cosine" in reports[1].laziness
    found = resumed(graph_file, tmp_path, settings, "lazygnn", 2)
    assert_same(final_state(trainer), found.state)
    assert found.reports == [comparable(report) for report in reports]


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
