import io
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lazygnn import commands
from lazygnn.commands.show import show_run
from lazygnn.config import Config
from lazygnn.run.folder import Run

Configure = Callable[..., Config]


@pytest.fixture
def run(tmp_path: Path, configure: Configure) -> Run:
    """A run that has not been trained."""
    return Run.create(tmp_path / "run", configure("block"))


def shown(path: Path, width: int = 200) -> str:
    file = io.StringIO()
    show_run(path, Console(file=file, width=width))
    return file.getvalue()


def table(out: str, title: str, bar: str = "│") -> list[list[str]]:
    """The cells of a table; its head has another bar."""
    lines = out.splitlines()
    below = lines[next(at for at, line in enumerate(lines) if line.strip() == title) :]
    rows = itertools.takewhile(lambda line: not line.startswith("└"), below)
    return [[cell.strip() for cell in line.strip(bar).split(bar)] for line in rows if line.startswith(bar)]


def write_log(run: Run, epochs: int, eval_every: int, diagnose_every: int) -> list[dict[str, Any]]:
    laziness = {"mean_age": 1234.5, "drift_norm": 0.25, "fixed_point_error": 0.125, "gradient_cosine": -0.5}
    log: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        scores = dict.fromkeys(("train", "val", "test"), epoch / 10000)
        due = {every: epoch % every == 0 or epoch == epochs for every in (eval_every, diagnose_every)}
        found = {"scores": scores if due[eval_every] else None, "laziness": laziness if due[diagnose_every] else None}
        log.append({"epoch": epoch, "loss": 1234.5, "seconds": 123.456, "lr": 0.01} | found)
    run.log.path.write_text("".join(json.dumps(line) + "\n" for line in log))
    return log


def test_no_number_is_cut_on_a_narrow_terminal(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    # five numbers: the gradient is compared with the exact one, too
    config = configure(dataset, epochs=6, eval_every=2, diagnose_every=2)
    result = commands.train(config, tmp_path / "run", quiet=True)
    out = shown(tmp_path / "run", width=80)
    assert "…" not in out
    assert '"hidden_channels": 8' in out
    assert str(result["test"]) in out
    last = Run.open(tmp_path / "run").log.read()[-1]
    scores = [f"{last['scores'][split]:.4f}" for split in ("train", "val", "test")]
    assert table(out, "training log")[-1] == ["6", f"{last['loss']:.4f}", *scores, f"{last['seconds']:.3f}"]
    assert "train, val and test are accuracy" in " ".join(out.split())
    assert len(last["laziness"]) == 5
    assert table(out, "laziness")[-1] == ["6", *(f"{value:.3f}" for value in last["laziness"].values())]
    # the names of the log and the docs, in two lines
    assert [*map("".join, zip(*table(out, "laziness", "┃"), strict=True))] == ["epoch", *last["laziness"]]


def test_chosen_values_replace_options_left_open(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    commands.train(configure(dataset), tmp_path / "run", quiet=True)
    chosen = ['"device": "cpu"', '"metric": "accuracy"', '"response": "fitted"', '"cuda_graphs": "off"', '"beta": 0.1']
    out = shown(tmp_path / "run")
    assert [text for text in chosen if text not in out] == []
    assert "auto" not in out
    # an older run does not have the file
    (tmp_path / "run" / "chosen.json").unlink()
    out = shown(tmp_path / "run")
    assert '"response": "auto"' in out
    assert "train, val and test are accuracy" in out
    # neither has a run that was not trained
    (tmp_path / "run" / "result.json").unlink()
    assert "train, val and test are" not in shown(tmp_path / "run")


@pytest.mark.parametrize(
    ("every", "log_epochs", "laziness_epochs"),
    [
        # every diagnosed epoch has scores
        ((10, 20), range(20, 401, 20), range(20, 401, 20)),
        ((1, 20), range(20, 401, 20), range(20, 401, 20)),
        # few diagnosed epochs have scores
        ((10, 95), range(20, 401, 20), [95, 190, 285, 380, 400]),
        # few epochs have scores
        ((150, 401), sorted([*range(20, 401, 20), 150]), [400]),
    ],
)
def test_epochs_with_scores_are_preferred(
    run: Run, every: tuple[int, int], log_epochs: Iterable[int], laziness_epochs: Iterable[int]
) -> None:
    log = write_log(run, 400, *every)
    out = shown(run.path)
    rows = table(out, "training log")
    assert [int(row[0]) for row in rows] == list(log_epochs)
    assert [int(row[0]) for row in table(out, "laziness")] == list(laziness_epochs)
    assert [row[3] != "" for row in rows] == [log[epoch - 1]["scores"] is not None for epoch in log_epochs]
    assert rows[-1][2:5] == ["0.0400"] * 3


def test_the_last_epoch_of_an_interrupted_run_is_shown(run: Run) -> None:
    write_log(run, 100, 10, 5)
    run.log.rewind(98)
    epochs = [int(row[0]) for row in table(shown(run.path), "training log")]
    assert epochs == [*range(10, 100, 10), 98]


def test_a_run_that_has_not_ended_has_no_result(run: Run) -> None:
    assert "training has not ended" in shown(run.path)


def test_versions_are_shown_if_the_run_has_them(run: Run) -> None:
    assert "trained with" not in shown(run.path)
    run.save_environment({"lazygnn": "1.2", "commit": None, "torch": "3.4"})
    assert "trained with  lazygnn 1.2  torch 3.4" in shown(run.path)
