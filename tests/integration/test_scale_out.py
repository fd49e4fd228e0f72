"""Ranks under `torchrun` that are killed, stopped and cut off."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lazygnn.data.synthetic import block_graph

pytestmark = pytest.mark.soak

RANKS, KILLS = 3, 20
SET = ("epochs=60", "num_parts=6", "hidden_channels=16", "checkpoint_every=1", "norm=none", "patience=none")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "mine.npz"
    block_graph(3_000, 6, degree=8, in_channels=16, num_classes=4).save(path)
    return path


def torchrun(*arguments: str, restarts: int = 0) -> list[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS)]
    launch += ["--standalone", "--max-restarts", str(restarts), "--monitor-interval", "0.1"]
    return [*launch, "-m", "lazygnn", *arguments]


def train(graph: Path, out: Path, *more: str) -> list[str]:
    options = [f"--set={each}" for each in (*SET, *more)]
    return ["train", "lazygnn", str(graph), *options, "--out", str(out), "--quiet"]


@contextmanager
def started(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a command in a session of its own, and ends it and its children in any case."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, start_new_session=True)
        try:
            yield process
        finally:
            # `torchrun` starts ranks in sessions of their own
            for child in children(process):
                os.kill(child, signal.SIGKILL)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def children(process: subprocess.Popen[bytes]) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))
    except FileNotFoundError:
        return []


def wait_for(path: Path, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"`{path}` does not appear"
        time.sleep(0.1)


def test_ranks_that_are_killed_end_with_the_same_weights(graph: Path, tmp_path: Path) -> None:
    subprocess.run(torchrun(*train(graph, tmp_path / "whole")), check=True)
    rng, killed = random.Random(0), 0
    with started(torchrun(*train(graph, tmp_path / "killed"), restarts=KILLS), tmp_path / "log") as process:
        while killed < KILLS and process.poll() is None:
            # at any moment: imports, meeting, training and checkpoints
            time.sleep(rng.uniform(0, 12))
            if ranks := children(process):
                os.kill(rng.choice(ranks), signal.SIGKILL)
                killed += 1
        assert process.wait(300) == 0, (tmp_path / "log").read_text()[-2000:]
    assert killed > 5
    expected = load_file(tmp_path / "whole" / "best.safetensors")
    for name, weight in load_file(tmp_path / "killed" / "best.safetensors").items():
        assert torch.equal(weight, expected[name])


def test_a_rank_that_hangs_is_named_within_the_time_out(graph: Path, tmp_path: Path) -> None:
    command = torchrun(*train(graph, tmp_path / "run", "epochs=100000", "rank_timeout=5"))
    with started(command, tmp_path / "log") as process:
        wait_for(tmp_path / "run" / "log.jsonl")
        os.kill(children(process)[1], signal.SIGSTOP)
        began = time.monotonic()
        while "error:" not in (tmp_path / "log").read_text():
            assert time.monotonic() - began < 30
            time.sleep(0.2)
    (line,) = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("error:")]
    assert "rank 1 of 3 ended or did not answer within 5 seconds" in line
    # what was saved can be resumed, also by one process
    resumed = [sys.executable, "-m", "lazygnn", "train", "--resume", str(tmp_path / "run"), "--quiet"]
    with started(resumed, tmp_path / "again") as process:
        lines = (tmp_path / "run" / "log.jsonl").read_text().count("\n")
        began = time.monotonic()
        while (tmp_path / "run" / "log.jsonl").read_text().count("\n") < lines + 5:
            assert time.monotonic() - began < 120
            time.sleep(0.2)


def test_control_c_ends_all_ranks_with_a_checkpoint(graph: Path, tmp_path: Path) -> None:
    with started(torchrun(*train(graph, tmp_path / "run", "epochs=100000")), tmp_path / "log") as process:
        wait_for(tmp_path / "run" / "log.jsonl")
        ranks = children(process)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
    assert "stopped by SIGINT; the run is saved" in (tmp_path / "log").read_text()
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    assert list((tmp_path / "run" / "checkpoints").glob("ranks-*"))


def test_a_cut_link_between_two_hosts_is_an_error_on_both_sides(graph: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or subprocess.run(["which", "ip"], capture_output=True, check=False).returncode:
        pytest.skip("needs root and `ip` for network namespaces")
    with hosts() as (near, far):
        options = train(graph, tmp_path / "run", "epochs=100000", "rank_timeout=8")
        logs = [tmp_path / "near", tmp_path / "far"]
        commands = []
        for rank, host in enumerate((near, far)):
            environment = [f"RANK={rank}", "WORLD_SIZE=2", "MASTER_ADDR=10.77.0.1", "MASTER_PORT=29555"]
            environment += ["GLOO_SOCKET_IFNAME=wire"]
            commands.append(
                ["ip", "netns", "exec", host, "env", *environment, sys.executable, "-m", "lazygnn", *options]
            )
        with started(commands[0], logs[0]) as first, started(commands[1], logs[1]) as second:
            wait_for(tmp_path / "run" / "log.jsonl")
            subprocess.run(["ip", "netns", "exec", near, "ip", "link", "set", "wire", "down"], check=True)
            began = time.monotonic()
            assert (first.wait(60), second.wait(60)) == (2, 2)
            assert time.monotonic() - began < 45
    assert all("error: rank" in log.read_text() for log in logs)
    resumed = [sys.executable, "-m", "lazygnn", "train", "--resume", str(tmp_path / "run"), "--quiet"]
    lines = (tmp_path / "run" / "log.jsonl").read_text().count("\n")
    with started(resumed, tmp_path / "again"):
        began = time.monotonic()
        while (tmp_path / "run" / "log.jsonl").read_text().count("\n") < lines + 5:
            assert time.monotonic() - began < 120
            time.sleep(0.2)


@contextmanager
def hosts() -> Iterator[tuple[str, str]]:
    """Makes two network namespaces with a link between them."""
    names = (f"near-{os.getpid()}", f"far-{os.getpid()}")
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        ends = [["name", "wire", "netns", name] for name in names]
        pair = ["ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1]]
        subprocess.run(pair, check=True, capture_output=True)
        for number, name in enumerate(names, 1):
            inside = ["ip", "netns", "exec", name, "ip"]
            for words in (["addr", "add", f"10.77.0.{number}/24", "dev", "wire"], ["link", "set", "wire", "up"]):
                subprocess.run([*inside, *words], check=True, capture_output=True)
            subprocess.run([*inside, "link", "set", "lo", "up"], check=True, capture_output=True)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"cannot make network namespaces: {error.stderr.decode().strip()}")
    try:
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
