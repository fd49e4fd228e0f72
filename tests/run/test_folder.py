import errno
import json
import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.feature_scale import FeatureScale
from lazygnn.methods import read_config, resolve
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.claim import FEATURES, INITIAL
from lazygnn.run.digests import DIGESTS
from lazygnn.run.folder import (
    CHECKPOINTS,
    CHOSEN,
    CONFIG,
    ENVIRONMENT,
    INPUTS,
    LOG,
    REPORT,
    RESULT,
    WEIGHTS,
    Run,
)
from lazygnn.training import EpochReport


@pytest.fixture
def config() -> Config:
    return resolve("lazygnn", "block", {"epochs": 3, "alpha": 0.2}, seed=4)


@pytest.fixture
def run(tmp_path: Path, config: Config) -> Run:
    return Run.create(tmp_path / "deep" / "run", config)


def test_the_configuration_is_read_back(run: Run, config: Config) -> None:
    opened = Run.open(run.path)
    assert opened.config(read_config) == config
    assert json.loads((run.path / CONFIG).read_text())["model"]["alpha"] == 0.2


def test_weights_are_read_back_unchanged(run: Run) -> None:
    weights = {"a": torch.randn(3, 2).T, "b": torch.arange(4)}
    run.save_weights(weights)
    loaded = run.load_weights()
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_files_have_the_permissions_of_the_umask(config: Config, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        run = Run.create(tmp_path / "run", config)
        run.log.append(EpochReport(1, 0.5, 0.01, 0.1, None))
        run.log.rewind(1)
        run.save_chosen({"device": "cpu"})
        run.save_weights({"a": torch.ones(2)})
        run.save_result({"val": 0.5})
    finally:
        os.umask(before)
    written = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.path.iterdir()}
    assert written == dict.fromkeys((CONFIG, CHOSEN, DIGESTS, LOG, WEIGHTS, RESULT), 0o640)


def test_the_result_is_empty_until_training_ends(run: Run) -> None:
    assert run.result() == {}
    run.save_result({"val": 0.5, "test": None})
    assert run.result() == {"val": 0.5, "test": None}


def test_what_was_chosen_is_empty_until_the_model_is_built(run: Run) -> None:
    assert run.chosen() == {}
    run.save_chosen({"device": "cpu"})
    assert run.chosen() == {"device": "cpu"}


def test_a_folder_that_is_not_empty_is_refused(run: Run, config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`.*run` exists and is not empty; choose another `--out` or remove it"):
        Run.create(run.path, config)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"`.*file` exists and is not empty"):
        Run.create(tmp_path / "file", config)
    (tmp_path / "empty").mkdir()
    assert Run.create(tmp_path / "empty", config).config(read_config) == config


def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(CheckpointError, match=r"is not a run folder: it has no `config.json`; give a folder that"):
            Run.open(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", r"cannot read `.*config.json`: Expecting property name"),
        (b"\xff\xfe\x00", r"cannot read `.*config.json`: "),
        (b"[1]", r"`.*config.json` does not hold a JSON object; it was not written by lazygnn"),
        (b"{}", r"`.*config.json` is not the configuration of a run: option `method`"),
    ],
)
def test_a_corrupt_configuration_is_a_checkpoint_error(run: Run, content: bytes, message: str) -> None:
    (run.path / CONFIG).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        Run.open(run.path, verify=False).config(read_config)


def test_a_configuration_with_an_unknown_name_is_a_checkpoint_error(run: Run, config: Config) -> None:
    (run.path / CONFIG).write_text(json.dumps(config.model_dump() | {"color": "red"}))
    with pytest.raises(CheckpointError, match=r"is not the configuration of a run: unknown option `color`"):
        Run.open(run.path, verify=False).config(read_config)


def test_a_run_without_weights_has_not_ended(run: Run) -> None:
    message = (
        r"run `(.*)` has no weights yet, since its training has not ended; resume it with `lazygnn train --resume \1`"
    )
    with pytest.raises(CheckpointError, match=message):
        run.load_weights()
    assert not run.has_ended()
    run.save_weights({})
    assert not run.has_ended()
    run.save_result({"val": None})
    assert run.has_ended()


@pytest.mark.parametrize("content", [None, b"", b"not weights at all", b"\xff" * 100])
def test_corrupt_weights_are_a_checkpoint_error(run: Run, content: bytes | None) -> None:
    run.save_result({"val": 0.5})
    if content is not None:
        (run.path / WEIGHTS).write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"cannot read `.*best.safetensors`: .*; restore it with `lazygnn train --resume"
    ):
        run.load_weights()


def test_a_corrupt_result_is_a_checkpoint_error(run: Run) -> None:
    (run.path / RESULT).write_text("nothing")
    with pytest.raises(CheckpointError, match=r"cannot read `.*result.json`: "):
        run.result()


def test_a_write_that_fails_leaves_the_earlier_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.save_weights({"a": torch.ones(2)})
    run.save_result({"val": 0.5})

    def fail(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        run.save_weights({"a": torch.zeros(2)})
    with pytest.raises(OSError, match="no space left"):
        run.save_result({"val": 0.25})
    assert run.load_weights()["a"].tolist() == [1.0, 1.0]
    assert run.result() == {"val": 0.5}
    assert sorted(path.name for path in run.path.iterdir()) == [WEIGHTS, CONFIG, DIGESTS, RESULT]


def test_a_run_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, content: bytes) -> None:
        raise PermissionError(errno.EACCES, "permission denied")

    monkeypatch.setattr(Path, "write_bytes", fail)
    message = r"cannot write the run folder `.*run`: .*permission denied; choose another `--out`"
    with pytest.raises(ConfigError, match=message):
        Run.create(tmp_path / "run", config)
    assert not (tmp_path / "run" / CONFIG).exists()


def test_a_run_that_has_not_ended_has_the_best_weights_of_its_checkpoint(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = CheckpointFolder(run.path / CHECKPOINTS)
    checkpoints.save(1, {"model.a": torch.zeros(1)}, {"best_epoch": 0})
    with pytest.raises(CheckpointError, match="has no weights yet"):
        run.load_weights()
    checkpoints.save(2, {"model.a": torch.zeros(1), "best.a": torch.ones(1)}, {"best_epoch": 7})
    assert run.load_weights()["a"].tolist() == [1.0]
    assert "has not ended; using its best weights so far, of epoch 7" in caplog.text
    assert not run.has_ended()


def test_a_folder_that_was_removed_is_not_made_again(run: Run) -> None:
    shutil.rmtree(run.path)
    for write in (run.save_weights, run.save_result, run.save_chosen):
        with pytest.raises(CheckpointError, match=r"has lost its `config.json`; train again from scratch"):
            write({})
    assert not run.path.exists()


def test_initial_weights_are_there_before_the_folder_is_a_run(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    monkeypatch.setattr("lazygnn.run.folder.write_file", lambda path, _: written.append(path.name))
    Run.create(tmp_path / "run", config, {"a": torch.ones(2)}, FeatureScale(torch.zeros(2), torch.ones(2)))
    assert written == [INITIAL, FEATURES, CONFIG]


@pytest.mark.parametrize(
    "name", [CONFIG, INITIAL, FEATURES, WEIGHTS, RESULT, CHOSEN, INPUTS, ENVIRONMENT, REPORT, DIGESTS]
)
def test_a_flip_of_any_bit_of_a_file_is_found(tmp_path: Path, config: Config, name: str) -> None:
    weights = {"a": torch.randn(3, 2), "b": torch.arange(4)}
    run = Run.create(tmp_path / "run", config, weights, FeatureScale(torch.zeros(2), torch.ones(2)))
    run.save_weights(weights)
    for save in (run.save_result, run.save_chosen, run.save_inputs, run.save_environment, run.save_report):
        save({"val": 0.5, "seed": "auto"})
    read: dict[str, Callable[[], object]] = {
        CONFIG: lambda: run.config(read_config),
        INITIAL: run.load_initial,
        FEATURES: run.feature_scale,
        WEIGHTS: run.load_weights,
        CHOSEN: run.chosen,
        INPUTS: run.inputs,
        ENVIRONMENT: run.environment,
        REPORT: run.report,
    }
    content, draw = (run.path / name).read_bytes(), random.Random(0)
    for position in range(0, len(content), 1 if len(content) < 200 else 11):
        flipped = bytearray(content)
        flipped[position] ^= 1 << draw.randrange(8)
        (run.path / name).write_bytes(flipped)
        with pytest.raises(CheckpointError):
            read.get(name, run.result)()
    (run.path / name).write_bytes(content)
    read.get(name, run.result)()


def test_a_changed_file_is_taken_as_it_is_on_request(run: Run) -> None:
    run.save_weights({"a": torch.ones(2)})
    run.save_result({"val": 0.5})
    (run.path / RESULT).write_text('{"val": 0.75}')
    message = (
        r"`.*result.json` has changed since lazygnn wrote it; restore it with `lazygnn train --resume .*run`, "
        r"or take it as it is with `--no-verify` or without `digests.json`"
    )
    with pytest.raises(CheckpointError, match=message):
        run.result()
    assert not run.has_ended()
    assert Run.open(run.path, verify=False).result() == {"val": 0.75}
    (run.path / DIGESTS).unlink()
    assert run.result() == {"val": 0.75}


def test_the_weights_of_another_run_are_refused(run: Run, config: Config, tmp_path: Path) -> None:
    other = Run.create(tmp_path / "other", config)
    for each, value in ((run, 1.0), (other, 2.0)):
        each.save_weights({"a": torch.full((2,), value)})
        each.save_result({"val": 0.5})
    (other.path / WEIGHTS).replace(run.path / WEIGHTS)
    with pytest.raises(CheckpointError, match="it is not the file that lazygnn wrote; restore it with `lazygnn train"):
        run.load_weights()


def test_kept_weights_of_a_failed_training_are_told_of(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.save_weights({"a": torch.ones(2)})
    assert run.load_weights()["a"].tolist() == [1.0, 1.0]
    assert "has not ended; using the best weights that it has kept" in caplog.text
    run.remove_weights()
    with pytest.raises(CheckpointError, match="has no weights yet"):
        run.load_weights()


def test_weights_of_earlier_versions_have_no_digest(run: Run) -> None:
    save_file({"a": torch.ones(2)}, run.path / WEIGHTS)
    run.save_result({"val": 0.5})
    assert run.load_weights()["a"].tolist() == [1.0, 1.0]
