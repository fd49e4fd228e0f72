import json
import os
import stat
from pathlib import Path

import pytest
import torch

from lazygnn.config import Config
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.methods import read_config, resolve
from lazygnn.run.folder import CONFIG, LOG, RESULT, WEIGHTS, Run, peak_memory_mib
from lazygnn.training import EpochReport


@pytest.fixture
def config() -> Config:
    return resolve("lazygnn", "block", {"epochs": 3, "alpha": 0.2}, seed=4)


@pytest.fixture
def run(tmp_path: Path, config: Config) -> Run:
    return Run.create(tmp_path / "deep" / "run", config)


def test_the_configuration_comes_back(run: Run, config: Config) -> None:
    opened = Run.open(run.path)
    assert opened.config(read_config) == config
    assert json.loads((run.path / CONFIG).read_text())["model"]["alpha"] == 0.2


def test_the_log_has_a_line_for_every_epoch(run: Run) -> None:
    assert run.history() == []
    run.log(EpochReport(1, 0.5, 0.01, 0.1, None))
    run.log(EpochReport(2, 0.4, 0.02, 0.1, {"val": 0.75}))
    first, second = run.history()
    assert (first["epoch"], first["loss"], first["scores"]) == (1, 0.5, None)
    assert (second["epoch"], second["seconds"], second["scores"]) == (2, 0.02, {"val": 0.75})


def test_a_line_cut_off_by_a_crash_is_left_out(run: Run) -> None:
    run.log(EpochReport(1, 0.5, 0.01, 0.1, None))
    with (run.path / LOG).open("a") as file:
        file.write('{"epoch": 2, "lo')
    assert [line["epoch"] for line in run.history()] == [1]


def test_weights_come_back_as_they_were(run: Run) -> None:
    weights = {"a": torch.randn(3, 2).T, "b": torch.arange(4)}
    run.save_weights(weights)
    loaded = run.load_weights()
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_everyone_may_read_what_a_run_writes_as_far_as_the_umask_goes(run: Run) -> None:
    before = os.umask(0o027)
    try:
        run.log(EpochReport(1, 0.5, 0.01, 0.1, None))
        run.rewind(1)
        run.save_weights({"a": torch.ones(2)})
        run.save_result({"val": 0.5})
    finally:
        os.umask(before)
    written = {path.name: stat.S_IMODE(path.stat().st_mode) for path in run.path.iterdir() if path.name != CONFIG}
    assert written == dict.fromkeys((LOG, WEIGHTS, RESULT), 0o640)


def test_the_result_is_empty_until_training_ends(run: Run) -> None:
    assert run.result() == {}
    run.save_result({"val": 0.5, "test": None})
    assert run.result() == {"val": 0.5, "test": None}


def test_what_was_chosen_is_empty_until_the_model_is_built(run: Run) -> None:
    assert run.chosen() == {}
    run.save_chosen({"device": "cpu"})
    assert run.chosen() == {"device": "cpu"}


def test_a_folder_that_holds_something_is_refused(run: Run, config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"`.*run` exists and is not empty; choose another `--out` or remove it"):
        Run.create(run.path, config)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"`.*file` exists and is not empty"):
        Run.create(tmp_path / "file", config)
    (tmp_path / "empty").mkdir()
    assert Run.create(tmp_path / "empty", config).config(read_config) == config


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
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
def test_a_broken_configuration_is_a_checkpoint_error(run: Run, content: bytes, message: str) -> None:
    (run.path / CONFIG).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        Run.open(run.path).config(read_config)


def test_a_configuration_with_an_unknown_name_is_a_checkpoint_error(run: Run, config: Config) -> None:
    (run.path / CONFIG).write_text(json.dumps(config.model_dump() | {"colour": "red"}))
    with pytest.raises(CheckpointError, match=r"is not the configuration of a run: option `colour` is 'red'"):
        run.config(read_config)


def test_a_run_without_weights_has_not_ended(run: Run) -> None:
    message = r"run `(.*)` has no weights yet, since its training has not ended; go on with `lazygnn train --resume \1`"
    with pytest.raises(CheckpointError, match=message):
        run.load_weights()
    assert not run.has_ended()
    run.save_weights({})
    assert not run.has_ended()
    run.save_result({"val": None})
    assert run.has_ended()


@pytest.mark.parametrize("content", [None, b"", b"not weights at all", b"\xff" * 100])
def test_broken_weights_are_a_checkpoint_error(run: Run, content: bytes | None) -> None:
    run.save_result({"val": 0.5})
    if content is not None:
        (run.path / WEIGHTS).write_bytes(content)
    with pytest.raises(
        CheckpointError, match=r"cannot read `.*best.safetensors`: .*; go on with `lazygnn train --resume"
    ):
        run.load_weights()


@pytest.mark.parametrize("content", [b"[]\n", b"{}\n", b"3\n", b"\xff\xfe\n"])
def test_a_log_of_something_else_is_a_checkpoint_error(run: Run, content: bytes) -> None:
    (run.path / LOG).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"`.*log.jsonl`"):
        run.history()


def test_a_broken_result_is_a_checkpoint_error(run: Run) -> None:
    (run.path / RESULT).write_text("nothing")
    with pytest.raises(CheckpointError, match=r"cannot read `.*result.json`: "):
        run.result()


def test_peak_memory_is_that_of_this_process() -> None:
    before = peak_memory_mib(torch.device("cpu"))
    held = torch.ones(2**26)
    grown = peak_memory_mib(torch.device("cpu"))
    # torch alone takes more than 50 MiB; no test takes 64 GiB
    assert 50 < before <= grown < 65_536
    assert grown >= held.nbytes / 2**20
