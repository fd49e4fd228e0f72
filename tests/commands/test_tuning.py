import json
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn import commands
from lazygnn.commands.tuning import BEST, STUDY
from lazygnn.config import read_options
from lazygnn.data import load_graph
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.methods import resolve
from lazygnn.run.saving import Interrupted
from lazygnn.tuning.space import read_space
from lazygnn.tuning.study import JOURNAL, Study
from tests.processes import start_command

pytest.importorskip("optuna")
QUICK: dict[str, Any] = {"epochs": 30, "hidden_channels": 16, "eval_every": 5}


@pytest.fixture
def misleading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph whose features tell the class and whose edges do not, where wide propagation is a mistake."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 240)
    split = rng.integers(0, 3, 240)
    masks = {f"{name}_mask": split == index for index, name in enumerate(("train", "val", "test"))}
    x = (np.eye(3)[y] + 0.5 * rng.normal(size=(240, 3))).astype(np.float32)
    edges = rng.integers(0, 240, (2, 1000))
    np.savez("noise.npz", edge_index=np.concatenate((edges, edges[::-1]), axis=1), x=x, y=y, **masks)
    return tmp_path / "noise.npz"


def test_a_search_beats_a_default_that_is_not_best(misleading: Path, tmp_path: Path) -> None:
    def train(values: dict[str, Any], out: str) -> dict[str, Any]:
        config = resolve("appnp", misleading, values, graph=load_graph(misleading), device="cpu")
        return commands.train(config, tmp_path / out, quiet=True)

    default = train(QUICK, "default")
    lines: list[str] = []
    found = commands.tune(
        "appnp", "noise.npz", QUICK, out=tmp_path / "tune", trials=12, device="cpu", tell=lines.append
    )
    assert found["complete"] + found["pruned"] == len(lines) == 12
    # the first trial is the default
    assert lines[0].startswith(f"trial 0: val {default['val']:.4f}")
    assert found["val"] > default["val"] + 0.1
    best = read_options(tmp_path / "tune" / BEST)
    assert best == found["options"]
    assert best["epochs"] == 30
    trained = train(best, "tuned")
    assert trained["val"] == found["val"]
    assert trained["test"] > default["test"]


def journal_of(folder: Path) -> Study:
    space = read_space(json.loads((folder / STUDY).read_text())["space"], "study")
    return Study(folder, space, seed=0, pruner="median", epochs=1)


def test_a_search_that_is_killed_loses_and_doubles_no_trial(misleading: Path, tmp_path: Path) -> None:
    long = QUICK | {"epochs": 60, "eval_every": 1}
    whole = commands.tune("mlp", misleading.name, long, out=tmp_path / "whole", trials=5, device="cpu")
    options = [f"--set={name}={value}" for name, value in long.items()]
    killed, printed = tmp_path / "killed", tmp_path / "printed"
    arguments = ["tune", "mlp", str(misleading), *options, "--out", str(killed), "--trials", "5", "--device", "cpu"]
    process = start_command(arguments, printed, {"OMP_NUM_THREADS": "1"})
    while not printed.is_file() or "trial 1:" not in printed.read_text():
        assert process.is_alive(), printed.read_text()
        time.sleep(0.005)
    # the next trial has started when the journal has grown
    size = (killed / JOURNAL).stat().st_size
    while (killed / JOURNAL).stat().st_size < size + 4000:
        assert process.is_alive()
        time.sleep(0.001)
    process.kill()
    process.join()
    running = journal_of(killed).interrupted()
    ended = journal_of(killed).tried()
    assert 2 <= len(ended) < 5
    assert len(running) == 1
    again = commands.resume_tuning(killed)
    tried = journal_of(killed).tried()
    assert [trial.number for trial in tried] == list(range(5))
    assert tried[: len(ended)] == ended
    assert tried[running[0].number].values == running[0].values
    # all is as if it had not been killed
    assert tried == journal_of(tmp_path / "whole").tried()
    assert {name: again[name] for name in ("val", "trial", "options")} == {
        name: whole[name] for name in ("val", "trial", "options")
    }
    more = commands.resume_tuning(killed, trials=6)
    assert more["complete"] + more["pruned"] == 6


def test_an_interruption_keeps_what_was_found(misleading: Path, tmp_path: Path) -> None:
    def stop(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"stopped by SIGINT; .* resume it with `lazygnn tune --resume .*/tune`$"):
        commands.tune("mlp", misleading.name, QUICK, out=tmp_path / "tune", trials=2, device="cpu", tell=stop)
    assert commands.resume_tuning(tmp_path / "tune")["complete"] == 2


def test_the_time_ends_a_search_before_a_trial_starts(misleading: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no trial in `.*tune` is complete: the time was too short; con"):
        commands.tune("mlp", misleading.name, QUICK, out=tmp_path / "tune", timeout=1e-9, device="cpu")
    assert commands.resume_tuning(tmp_path / "tune", trials=1)["complete"] == 1


def test_values_that_do_not_go_together_are_a_failed_trial(misleading: Path, tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text('halo = ["none"]\nnum_parts = [1, 4]\n')
    lines: list[str] = []
    values = {"epochs": 1, "hidden_channels": 4, "partition": "random"}
    found = commands.tune(
        "lazygnn", misleading.name, values | {"num_parts": 4}, space="space.toml", trials=1, device="cpu"
    )
    assert (found["complete"], found["options"]["halo"]) == (1, "none")
    del values["partition"]
    found = commands.tune(
        "lazygnn", misleading.name, values, space="space.toml", trials=8, device="cpu", tell=lines.append
    )
    assert found["options"]["num_parts"] == 4
    assert found["failed"] >= 1
    # the first trial has the default
    assert lines[0].startswith("trial 0: failed; halo=none, num_parts=1; `halo` is none, but `num_parts` is 1")


def test_a_first_trial_without_the_values_of_the_rule_is_warned_of(
    misleading: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "space.toml").write_text("mlp_layers = [4]\ndropout = [0.0, 0.5]\n")
    search: dict[str, Any] = {"out": tmp_path / "search", "space": "space.toml", "trials": 1, "device": "cpu"}
    found = commands.tune("mlp", misleading.name, {"epochs": 1, "hidden_channels": 4}, **search)
    assert found["options"] == {"epochs": 1, "hidden_channels": 4, "mlp_layers": 4, "dropout": 0.5}
    (message,) = [line for line in caplog.messages if "first trial" in line]
    assert message.startswith("the space does not contain `mlp_layers=3` of the recipe or rule, so the first")
    caplog.clear()
    commands.resume_tuning(tmp_path / "search", trials=2)
    commands.tune("mlp", misleading.name, {"epochs": 1, "hidden_channels": 4}, trials=1, device="cpu")
    assert not any("first trial" in line for line in caplog.messages)


def test_a_search_does_not_go_on_with_another_graph(misleading: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tune"
    commands.tune("mlp", misleading.name, {"epochs": 1}, out=folder, trials=1, device="cpu")
    arrays = dict(np.load(misleading))
    np.savez(misleading, **arrays | {"y": (arrays["y"] + 1) % 3})
    before = (folder / JOURNAL).read_bytes()
    message = (
        r"graph `noise` has other content than when search `.*tune` was started; restore it, start a new search with "
        r"another `--out`, or take it as it is with `--no-verify`$"
    )
    with pytest.raises(CheckpointError, match=message):
        commands.resume_tuning(folder, trials=2)
    assert (folder / JOURNAL).read_bytes() == before
    assert commands.resume_tuning(folder, trials=2, verify=False)["complete"] == 2
    # an earlier version kept no record of the graph
    content = json.loads((folder / STUDY).read_text())
    del content["graph"]
    (folder / STUDY).write_text(json.dumps(content))
    assert commands.resume_tuning(folder, trials=3)["complete"] == 3


def test_the_folder_holds_a_file_of_options_and_the_result(misleading: Path) -> None:
    found = commands.tune("mlp", misleading.name, {"epochs": 2}, space="options", trials=1, device="cpu", pruner="none")
    folder = Path("runs/noise-mlp-tune")
    assert found == json.loads((folder / "result.json").read_text())
    content = (folder / BEST).read_text()
    assert content.startswith("# found by `lazygnn tune mlp ")
    assert tomllib.loads(content) == found["options"]
    with pytest.raises(ConfigError, match=r"`(.*)` exists and is not empty; continue a search with .* --resume \1`"):
        commands.tune("mlp", misleading.name, out=folder, device="cpu")


def test_what_cannot_be_searched_is_refused(misleading: Path, tmp_path: Path) -> None:
    (tmp_path / "step.toml").write_text("lr = { low = 0.01, high = 0.1, step = 0.01, log = true }\n")
    for values, message in (
        ({"trials": 0}, r"`trials` is 0; give at least 1"),
        ({"jobs": 0}, r"`jobs` is 0; give at least 1"),
        ({"timeout": 0.0}, r"`timeout` is 0.0; give a number of seconds above 0"),
        ({"pruner": "best"}, r"`pruner` is `best`; choose one of"),
        ({"space": "best"}, r"`space` is `best`; choose options, paper or a file"),
        ({"space": "step.toml"}, r"the range of `lr` has `log` and a `step` of 0.01; omit one of them"),
        ({"values": {"metric": "r2"}}, r"metric `r2` does not fit a single-label task"),
    ):
        with pytest.raises(ConfigError, match=message):
            commands.tune("mlp", misleading.name, out=tmp_path / "tune", device="cpu", **values)
    assert not (tmp_path / "tune").exists()
    with pytest.raises(CheckpointError, match=r"has no `study.json`; give a folder that `lazygnn tune` wrote"):
        commands.resume_tuning(tmp_path)
    (tmp_path / STUDY).write_text("{}")
    with pytest.raises(CheckpointError, match=r"study.json` was not written by lazygnn"):
        commands.resume_tuning(tmp_path)
