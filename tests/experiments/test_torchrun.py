"""Ranks that `torchrun` starts: their arguments, their results and their failures."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from experiments import torchrun
from lazygnn.commands.sharing import for_ranks
from lazygnn.config import Config, parse_assignments
from lazygnn.errors import RankError
from lazygnn.graph import Graph
from lazygnn.methods import recipes, resolve

WORDS = ["train", "lazygnn", "mine"]


@pytest.fixture
def starter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Returns a function that replaces what starts ranks by a script of the shell."""

    def replace(script: str) -> None:
        path = tmp_path / "starter"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return replace


def configs_of(graph: Graph, number: int) -> list[tuple[Config, Graph]]:
    made = [resolve("lazygnn", "mine", {"num_parts": 4}, graph=graph, seed=seed) for seed in range(number)]
    return [(for_ranks(config, graph, 2), graph) for config in made]


@pytest.mark.parametrize("method", ["lazygnn", "lazygnn-deep"])
def test_arguments_give_the_configuration_whatever_the_recipe(
    method: str, block_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipes, "_SIZES", {})
    values = {"num_parts": 6, "parts_per_step": 2, "epochs": 7, "lr": 1e-5, "clip_norm": None}
    place: dict[str, Any] = {"seed": 3, "device": "cpu", "root": "data"}
    config = resolve(method, "wordnet-small", values, graph=block_graph, use_recipe=False, **place)
    wanted = for_ranks(config, block_graph, 2)
    # the recipe has other values
    assert resolve(method, "wordnet-small", values, graph=block_graph, **place).model != wanted.model
    words = torchrun.arguments(wanted, block_graph)
    given = parse_assignments(word.removeprefix("--set=") for word in words if word.startswith("--set="))
    assert for_ranks(resolve(method, "wordnet-small", given, graph=block_graph, **place), block_graph, 2) == wanted
    assert words[:3] == ["train", method, "wordnet-small"]
    assert words[-7:] == ["--seed", "3", "--device", "cpu", "--root", "data", "--quiet"]


def test_the_reason_of_a_failure_is_what_the_command_has_reported(
    starter: Callable[[str], None], tmp_path: Path
) -> None:
    starter("echo WARNING >&2; echo 'error: no such value' >&2; echo 'ChildFailedError: report' >&2; exit 1")
    with pytest.raises(RankError, match=r"^2 ranks that train `lazygnn` on `mine` have failed: no such value$"):
        torchrun.launch(2, WORDS, tmp_path, Event())


def test_without_a_reason_a_failure_shows_the_last_lines(starter: Callable[[str], None], tmp_path: Path) -> None:
    starter("for i in $(seq 30); do echo line $i >&2; done; exit 1")
    with pytest.raises(RankError, match=r"have failed: line 21\nline 22\n(.*\n)*line 30$"):
        torchrun.launch(2, WORDS, tmp_path, Event())


def test_ranks_that_take_too_long_are_ended(
    starter: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchrun, "TIMEOUT", 0.5)
    starter(f"echo $$ > {tmp_path}/number; exec sleep 60")
    with pytest.raises(RankError, match=r"did not end within 0 seconds; train fewer epochs with `--epochs`"):
        torchrun.launch(2, WORDS, tmp_path, Event())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "number").read_text()), 0)


def test_a_run_that_fails_ends_the_others(
    starter: Callable[[str], None], results: Path, tmp_path: Path, block_graph: Graph
) -> None:
    seen = f"{tmp_path}/seen"
    # the first to make the folder waits, the other one fails once the first has written its number
    wait = f"while [ ! -s {seen}/number ]; do sleep 0.1; done; echo 'error: broken' >&2; exit 1"
    starter(f"if mkdir {seen}; then echo $$ > {seen}/number; exec sleep 60; fi; {wait}")
    began = time.monotonic()
    with pytest.raises(RankError, match=r"have failed: broken$"):
        torchrun.run_ranks("ranks", configs_of(block_graph, 3), 2, workers=2)
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "seen" / "number").read_text()), 0)
    assert not results.exists()


@pytest.mark.soak
def test_ranks_that_cannot_load_their_graph_say_so_once(tmp_path: Path, block_graph: Graph) -> None:
    missing = str(tmp_path / "missing.npz")
    config = resolve("lazygnn", missing, {"num_parts": 4, "epochs": 1}, graph=block_graph, device="cpu")
    words = torchrun.arguments(for_ranks(config, block_graph, 2), block_graph)
    with pytest.raises(RankError, match=r"have failed: no file `.*missing.npz`; give the path") as caught:
        torchrun.train(words, tmp_path / "run", 2, Event())
    assert "\n" not in str(caught.value)
