"""A run that was stopped, in whatever way, ends exactly as one that was not."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lazygnn import workflow
from lazygnn.data import load_graph
from lazygnn.errors import CheckpointError
from lazygnn.methods import build, resolve
from lazygnn.run.checkpoint import CheckpointFolder
from lazygnn.run.folder import CHECKPOINTS, RESULT, WEIGHTS, Run
from lazygnn.training.trainer import EpochReport, Trainer

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


def make_trainer(graph_file: Path, settings: dict[str, Any], folder: Path) -> Trainer:
    torch.manual_seed(0)
    config = resolve("lazygnn", str(graph_file), settings)
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


@pytest.mark.parametrize("tier", ["device", "host", "disk"])
@pytest.mark.parametrize("stop_after", [1, 3, 8, 17])
def test_stopping_after_any_batch_changes_nothing(graph_file: Path, tmp_path: Path, tier: str, stop_after: int) -> None:
    settings = SETTINGS | {"history": tier}
    straight_reports: list[EpochReport] = []
    straight = make_trainer(graph_file, settings, tmp_path / "straight")
    straight.on_epoch = straight_reports.append
    straight.run()
    expected = final_state(straight)

    reports: list[EpochReport] = []
    first = make_trainer(graph_file, settings, tmp_path / "first")
    first.on_epoch = reports.append
    folder = CheckpointFolder(tmp_path / "checkpoints")

    def stop(trainer: Trainer) -> None:
        if trainer.num_batches == stop_after:
            folder.save(trainer.num_batches, *trainer.checkpoint())
            raise StopHere

    first.on_batch = stop
    with pytest.raises(StopHere):
        first.run()
    second = make_trainer(graph_file, settings, tmp_path / "second")
    second.on_epoch = reports.append
    saved = folder.load_latest()
    assert saved is not None
    second.restore(saved.tensors, saved.state)
    second.run()
    assert_same(expected, final_state(second))
    assert [comparable(report) for report in reports] == [comparable(report) for report in straight_reports]


def test_the_three_tiers_train_alike_bit_for_bit(graph_file: Path, tmp_path: Path) -> None:
    states = []
    for tier in ("device", "host", "disk"):
        trainer = make_trainer(graph_file, SETTINGS | {"history": tier}, tmp_path / tier)
        trainer.run()
        states.append(final_state(trainer))
    assert_same(states[0], states[1])
    assert_same(states[0], states[2])


def test_one_part_trains_like_full_batch_bit_for_bit(graph_file: Path, tmp_path: Path) -> None:
    from lazygnn.loader import ClusterLoader

    def run(one_part: bool) -> dict[str, Tensor]:
        torch.manual_seed(0)
        values = {"epochs": 5, "hidden_channels": 8, "norm": "batch", "label_step": False}
        config = resolve("lazygnn", str(graph_file), values)
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


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lazygnn", *arguments]


def start(graph_file: Path, run: Path, epochs: int) -> list[str]:
    settings = SETTINGS | {"epochs": epochs, "history": "disk"}
    pairs = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return command("train", "lazygnn", str(graph_file), "--out", str(run), "--quiet", "--device", "cpu", *pairs)


def outcome(run: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], list[Any]]:
    saved = CheckpointFolder(run / CHECKPOINTS).load_latest()
    assert saved is not None
    log = [{key: value for key, value in line.items() if key != "seconds"} for line in Run.open(run).history()]
    return load_file(run / WEIGHTS), saved.tensors, log


def kill_and_resume(graph_file: Path, folder: Path, kills: int, epochs: int, seed: int) -> None:
    environment = os.environ | {"LAZYGNN_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    straight, killed = folder / "straight", folder / "killed"
    subprocess.run(start(graph_file, straight, epochs), env=environment, check=True, capture_output=True)
    rng = random.Random(seed)
    arguments = start(graph_file, killed, epochs)
    landed = 0
    for _ in range(kills):
        process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # wait until training is under way, then strike at a random moment
        deadline = time.monotonic() + 60
        seen = _latest(killed)
        while process.poll() is None and _latest(killed) == seen and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.5))
        landed += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        arguments = command("train", "--resume", str(killed), "--quiet")
    assert landed > 0, "training was over before the first kill; make it longer"
    finished = subprocess.run(arguments, env=environment, check=True, capture_output=True, text=True)
    result = json.loads(finished.stdout.splitlines()[-1])
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


def test_sigterm_saves_and_says_how_to_go_on(graph_file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = [*start(graph_file, run, 100_000), "--set", "checkpoint_every=none", "--set", "diagnose_every=0"]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not (run / "log.jsonl").exists():
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM; the run is saved" in stderr
    saved = CheckpointFolder(run / CHECKPOINTS).load_latest()
    assert saved is not None
    assert saved.number > 0


def contents(run: Path) -> dict[Path, tuple[bytes, int]]:
    files = [path for path in run.rglob("*") if path.is_file()]
    return {path.relative_to(run): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_finished_run_is_left_as_it_is(
    graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = resolve("lazygnn", str(graph_file), SETTINGS)
    result = workflow.train(config, tmp_path / "run", quiet=True)
    (tmp_path / "run").rename(tmp_path / "moved")
    before = contents(tmp_path / "moved")
    monkeypatch.setattr(workflow, "peak_memory_mib", lambda _: 1e9)
    again = workflow.resume(tmp_path / "moved", quiet=True)
    assert again == result | {"run": str(tmp_path / "moved")}
    assert contents(tmp_path / "moved") == before
    assert "moved` has ended and is left as it is; to train anew, choose another `--out`" in caplog.text


@pytest.mark.parametrize("lost", [WEIGHTS, RESULT])
def test_what_a_finished_run_has_lost_comes_back(graph_file: Path, tmp_path: Path, lost: str) -> None:
    result = workflow.train(resolve("lazygnn", str(graph_file), SETTINGS), tmp_path / "run", quiet=True)
    weights = load_file(tmp_path / "run" / WEIGHTS)
    # the weights read above are mapped, so their file must not change
    (tmp_path / "run" / lost).unlink()
    (tmp_path / "run" / lost).write_bytes(b"{")
    again = workflow.resume(tmp_path / "run", quiet=True)
    for key in ("val", "test", "epochs", "best_epoch", "seconds_per_epoch"):
        assert result[key] == again[key]
    assert_same(weights, load_file(tmp_path / "run" / WEIGHTS))
    assert Run.open(tmp_path / "run").result() == again


def test_a_run_without_a_checkpoint_says_that_it_starts_over(
    graph_file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = resolve("lazygnn", str(graph_file), SETTINGS)
    straight = workflow.train(config, tmp_path / "run", quiet=True)
    # as if it had been killed at its end
    (tmp_path / "run" / RESULT).unlink()
    workflow.resume(tmp_path / "run", quiet=True)
    assert "starts over" not in caplog.text
    (tmp_path / "run" / RESULT).unlink()
    shutil.rmtree(tmp_path / "run" / CHECKPOINTS)
    again = workflow.resume(tmp_path / "run", quiet=True)
    assert again["test"] == straight["test"]
    assert "has no checkpoint yet and starts over; `checkpoint_minutes`" in caplog.text


def test_a_broken_checkpoint_falls_back_to_the_one_before(graph_file: Path, tmp_path: Path) -> None:
    config = resolve("lazygnn", str(graph_file), SETTINGS)
    straight = workflow.train(config, tmp_path / "run", quiet=True)
    newest = max((tmp_path / "run" / CHECKPOINTS).glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(bytes(content))
    (tmp_path / "run" / RESULT).unlink()
    again = workflow.resume(tmp_path / "run", quiet=True)
    assert again["test"] == straight["test"]
    (tmp_path / "run" / RESULT).unlink()
    for path in (tmp_path / "run" / CHECKPOINTS).iterdir():
        path.write_bytes(b"foreign")
    with pytest.raises(CheckpointError):
        workflow.resume(tmp_path / "run", quiet=True)
