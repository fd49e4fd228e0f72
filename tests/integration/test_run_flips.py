"""A flipped bit in any file of a run is found, or changes neither weights, nor predictions, nor the result."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from lazygnn import commands
from lazygnn.commands.evaluation import evaluate_by_metrics
from lazygnn.commands.prediction import write_predictions
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from lazygnn.methods import resolve
from lazygnn.run.digests import DIGESTS
from lazygnn.run.folder import CONFIG, CURVES, INPUTS, WEIGHTS
from lazygnn.run.saving import Interrupted, Saver
from lazygnn.training import Trainer
from tests.helpers import say
from tests.setups import TIMES, write_graph

OPTIONS: dict[str, Any] = {"epochs": 4, "hidden_channels": 4, "checkpoint_every": 1, "num_parts": 2, "history": "disk"}
TYPED = (CheckpointError, ConfigError, GraphError)
# a flip in one of these is always an error
FOUND = {CONFIG, DIGESTS, INPUTS, WEIGHTS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph, a run that has ended, with a report, and one that was stopped; both started from given weights."""
    folder = tmp_path_factory.mktemp("flips")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAZYGNN_CACHE", str(folder / "cache"))
        patch.setattr("lazygnn.commands.conclusion.plot_curves", lambda _, path: path.write_bytes(b"a picture"))
        write_graph(folder / "small.npz")
        values = OPTIONS | {"partition": "random"}
        config = resolve("lazygnn", str(folder / "small.npz"), values, device="cpu")
        commands.train(config, folder / "first", quiet=True)
        commands.train(config, folder / "ended", init_from=folder / "first", quiet=True)
        evaluate_by_metrics(folder / "ended", device="cpu", report=True)
        patch.setattr(Saver, "__call__", stop_in_the_third_epoch)
        with pytest.raises(Interrupted):
            commands.train(config, folder / "stopped", init_from=folder / "first", quiet=True)
    return folder


def stop_in_the_third_epoch(saver: Saver, trainer: Trainer) -> None:
    saver.save(trainer)
    if trainer.num_batches == 5:
        raise Interrupted(15, saver.folder.path.parent)


def answers(run: Path) -> tuple[dict[str, Any], bytes]:
    """Returns what `evaluate` and `predict` say of a run."""
    result = commands.evaluate_run(run, device="cpu")
    out = run.parent / "predictions.csv"
    write_predictions(run, out, device="cpu", calibrated=(run / "report.json").exists(), probabilities=True)
    return {name: value for name, value in result.items() if name not in TIMES}, out.read_bytes()


def ending(run: Path) -> list[Any]:
    """Resumes a run; returns its weights, its result and its answers."""
    result = commands.resume(run, device="cpu", quiet=True)
    kept = {name: value for name, value in result.items() if name not in TIMES}
    return [(run / WEIGHTS).read_bytes(), kept, answers(run)]


def flip_and_use(folder: Path, flips: int, seed: int) -> tuple[int, int]:
    """Flips bits in files of both runs, one at a time; returns how many were found, and how many had no effect."""
    expected: dict[str, Any] = {}
    draw, found, harmless = random.Random(seed), 0, 0
    for name in ("ended", "stopped"):
        shutil.copytree(folder / name, folder / f"{name}-copy")
        expected[name] = ending(folder / f"{name}-copy")
    kept = {name: sorted(path for path in (folder / name).rglob("*") if path.is_file()) for name in expected}
    for number in range(flips):
        name = draw.choice(("ended", "stopped"))
        # each file in turn, so that small ones are not missed
        file, copy = kept[name][number % len(kept[name])].relative_to(folder / name), folder / f"{name}-copy"
        shutil.rmtree(copy)
        shutil.copytree(folder / name, copy)
        content = bytearray((copy / file).read_bytes())
        bit = draw.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        (copy / file).write_bytes(content)
        where = f"bit {bit} of {name}/{file}"
        try:
            if name == "ended":
                assert answers(copy) == expected[name][2], where
            assert ending(copy) == expected[name], where
        except TYPED:
            assert file.name != CURVES, where
            found += 1
        else:
            harmless += 1
            assert file.name not in FOUND, where
    return found, harmless


@pytest.mark.usefixtures("no_pictures")
def test_sixty_flips_are_found_or_change_nothing(folder: Path) -> None:
    found, harmless = flip_and_use(folder, 60, seed=0)
    assert found > 10
    assert harmless > 5


@pytest.mark.soak
@pytest.mark.usefixtures("no_pictures")
def test_five_hundred_flips_are_found_or_change_nothing(folder: Path, request: pytest.FixtureRequest) -> None:
    found, harmless = flip_and_use(folder, 500, seed=1)
    say(request, f"500 flips: {found} found, {harmless} without effect")
    assert found + harmless == 500


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("LAZYGNN_CACHE", str(folder / "cache"))
    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: None)
    for name in ("ended-copy", "stopped-copy"):
        shutil.rmtree(folder / name, ignore_errors=True)
