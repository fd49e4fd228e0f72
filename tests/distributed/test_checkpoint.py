"""Resuming with another number of ranks is in test_trainer.py."""

import logging
from pathlib import Path

import pytest
import torch

from lazygnn.distributed.building import build_trainer, share_of
from lazygnn.distributed.checkpoint import FORMAT, STATE, RankCheckpoints
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.trainer import RankTrainer
from lazygnn.errors import CheckpointError
from lazygnn.methods import resolve
from lazygnn.run.record import read_sealed, seal


def make_trainer(folder: Path, epochs: int) -> RankTrainer:
    values = {"epochs": epochs, "num_parts": 5, "parts_per_step": 5, "hidden_channels": 8}
    config = resolve("lazygnn", "mine", values, use_recipe=False)
    return build_trainer(config, share_of(config, folder, Ranks()), Ranks(), torch.device("cpu"), folder)


@pytest.fixture
def saved(prepared: Path, tmp_path: Path) -> RankCheckpoints:
    """Three epochs of one step, saved after each; the first checkpoint is removed."""
    checkpoints, trainer = RankCheckpoints(tmp_path / "checkpoints", Ranks()), make_trainer(prepared, 3)
    trainer.on_batch = lambda _: checkpoints.save(trainer)
    trainer.run()
    return checkpoints


def names(checkpoints: RankCheckpoints) -> list[str]:
    return sorted(folder.name for folder in checkpoints.path.iterdir())


def test_the_newest_two_are_kept(saved: RankCheckpoints) -> None:
    assert names(saved) == ["ranks-000000002", "ranks-000000003"]


def test_a_corrupt_checkpoint_is_skipped(
    saved: RankCheckpoints, prepared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for file in (saved.path / "ranks-000000003").glob("*.distcp"):
        file.unlink()
    # a checkpoint that a crash has left unfinished does not count
    (saved.path / "ranks-000000004.tmp").mkdir()
    trainer = make_trainer(prepared, 3)
    with caplog.at_level(logging.WARNING):
        assert saved.restore(trainer)
    assert trainer.num_batches == 2
    assert "skipping checkpoint" in caplog.text


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", STATE])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8, 0.99])
def test_a_flip_of_a_byte_is_found(saved: RankCheckpoints, prepared: Path, name: str, share: float) -> None:
    file = saved.path / "ranks-000000003" / name
    content = bytearray(file.read_bytes())
    content[int(share * len(content))] ^= 1
    file.write_bytes(content)
    trainer = make_trainer(prepared, 3)
    assert saved.restore(trainer)
    assert trainer.num_batches == 2


def test_without_a_valid_checkpoint_the_reasons_are_told(saved: RankCheckpoints, prepared: Path) -> None:
    (saved.path / "ranks-000000003" / STATE).unlink()
    state = saved.path / "ranks-000000002" / STATE
    known = read_sealed(state, FORMAT, "a state")
    state.write_bytes(seal({name: value for name, value in known.items() if name != "sha256"} | {"parts": 7}))
    with pytest.raises(CheckpointError, match="it has 7 parts, and the graph 5"):
        saved.restore(make_trainer(prepared, 3))


def test_a_folder_without_checkpoints_is_a_start(prepared: Path, tmp_path: Path) -> None:
    assert not RankCheckpoints(tmp_path / "none", Ranks()).restore(make_trainer(prepared, 1))


def test_a_checkpoint_that_cannot_be_written_is_an_error(prepared: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        RankCheckpoints(tmp_path / "file", Ranks()).save(make_trainer(prepared, 1))
