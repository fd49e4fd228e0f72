"""The command `train`."""

import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from lazygnn.data.synthetic import block_graph
from lazygnn.methods import recipes
from tests.cli.helpers import KEYS, QUICK, Arrays, Command, assert_one_line


def test_files_of_a_run_have_the_permissions_of_the_umask(lazygnn: Command, dataset: Path) -> None:
    before = os.umask(0o022)
    try:
        lazygnn("train", "lazygnn", dataset, *QUICK, "--out", "run", "--set", "checkpoint_every=1")
    finally:
        os.umask(before)
    files = [path for path in Path("run").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".jsonl", ".safetensors", ".png"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}


def test_training_prints_its_result_as_the_last_line(lazygnn: Command, dataset: Path) -> None:
    done = lazygnn("train", "lazygnn", dataset, *QUICK, "--out", "run", "--seed", 3)
    assert done.status == 0
    assert done.result.keys() == KEYS
    assert (done.result["method"], done.result["seed"], done.result["run"]) == ("lazygnn", 3, "run")
    assert (done.result["epochs"], done.result["metric"]) == (2, "accuracy")
    assert 0 <= done.result["val"] <= 1
    # progress is not mixed with the result
    assert len(done.out.splitlines()) == 1
    assert "epoch 2/2" in done.err
    assert "accuracy: train" in done.err
    assert "loss" in done.err


def test_quiet_shows_no_progress(lazygnn: Command, dataset: Path) -> None:
    done = lazygnn("train", "mlp", dataset, *QUICK, "--out", "run", "--quiet")
    assert done.err == ""
    assert done.result["method"] == "mlp"


def test_a_missing_split_is_null(lazygnn: Command, tmp_path: Path, block_arrays: Arrays) -> None:
    del block_arrays["val_mask"], block_arrays["test_mask"]
    np.savez(tmp_path / "block.npz", **block_arrays)
    done = lazygnn("train", "mlp", "block.npz", *QUICK, "--out", "run")
    assert done.result["val"] is None
    assert done.result["test"] is None
    assert '"val": null' in done.out


def test_a_run_folder_holds_all_of_a_run(lazygnn: Command, dataset: Path, tmp_path: Path) -> None:
    lazygnn("train", "lazygnn", dataset, *QUICK, "--out", "run")
    run = tmp_path / "run"
    names = {"config.json", "chosen.json", "inputs.json", "log.jsonl", "best.safetensors", "curves.png", "result.json"}
    assert names <= {path.name for path in run.iterdir()}
    config = json.loads((run / "config.json").read_text())
    assert (config["method"], config["trainer"]["epochs"], config["model"]["hidden_channels"]) == ("lazygnn", 2, 4)
    assert [json.loads(line)["epoch"] for line in (run / "log.jsonl").read_text().splitlines()] == [1, 2]
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((run / "result.json").read_text()).keys() == KEYS


def test_set_overrides_the_file_and_the_file_overrides_the_recipe(
    lazygnn: Command, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset.rename(tmp_path / "cora.npz")
    monkeypatch.setitem(recipes._SIZES, "cora", (60, 3, 3))
    (tmp_path / "options.toml").write_text("epochs = 1\nalpha = 0.4\nhidden_channels = 5\n")
    done = lazygnn(
        "train",
        "appnp",
        "cora.npz",
        "--config",
        "options.toml",
        "--set",
        "alpha=0.6",
        "--out",
        "run",
        "--device",
        "cpu",
    )
    assert done.status == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["model"]["alpha"], config["model"]["hidden_channels"]) == (0.6, 5)
    assert config["trainer"]["epochs"] == 1
    # the recipe of cora
    assert config["trainer"]["decay_layers"] == 1


def test_parts_of_a_step_that_are_not_set_leave_the_training_to_one_process(lazygnn: Command, dataset: Path) -> None:
    done = lazygnn("train", "lazygnn", dataset, *QUICK, "--set", "parts_per_step=none", "--out", "run")
    assert done.status == 0
    assert "ranks" not in done.result


def test_set_can_empty_an_option(lazygnn: Command, dataset: Path, tmp_path: Path) -> None:
    dataset.rename(tmp_path / "cora.npz")
    lazygnn("train", "appnp", "cora.npz", *QUICK, "--set", "patience=none", "--out", "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["trainer"]["patience"] is None


def test_what_the_rule_means_for_a_training_is_told_once(
    lazygnn: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    block_graph(1000, 3, degree=20, in_channels=2, num_classes=3).save(tmp_path / "mine.npz")
    small = ("--set", "hidden_channels=4", "--set", "num_blocks=1", "--device", "cpu")
    done = lazygnn("train", "lazygnn-deep", "mine.npz", *small, "--set", "epochs=2", "--seeds", 2)
    assert done.status == 0
    sentence = "the rule shows training labels to the model as input (`label_input=0.5`); `--set label_input=0` trains"
    assert done.err.splitlines()[0].startswith(f"lazygnn-deep  {sentence}")
    assert done.err.count(sentence) == 1
    (warning,) = [line for line in caplog.messages if "the rule takes" in line]
    assert warning.startswith("`epochs` is 2, but the rule takes 590 for this graph; ")
    parts = ("--set", "num_parts=2", "--set", "parts_per_step=2")
    ranks = lazygnn("train", "lazygnn-deep", "mine.npz", *small, *parts, "--set", "epochs=1")
    assert ranks.status == 0
    assert ranks.err.splitlines()[0].startswith(sentence)
    assert sum("`epochs` is 1, but the rule takes" in line for line in caplog.messages) == 1
    assert lazygnn("train", "lazygnn-deep", "mine.npz", *small, "--set", "epochs=1", "--quiet").err == ""


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["lazygcn", "block.npz"], "unknown method `lazygcn`; did you mean `lazygnn`?"),
        (["lazygnn", ""], "the name of the data set is empty; give a name that `lazygnn list` shows, or a path"),
        (["lazygnn", "block.npz", "--device", ""], "unknown device ``; choose auto, cpu or cuda"),
        (["lazygnn", "gone.npz"], "no file `gone.npz`; give the path of an .npz file or the name of a data set"),
        (["lazygnn", "gone"], "unknown data set `gone`: no file `data/gone.npz`; set `--root` or `LAZYGNN_DATA` to "),
        (
            ["lazygnn", "arxiv"],
            "unknown data set `arxiv`: no file `data/arxiv.npz`; set `--root` or `LAZYGNN_DATA`",
        ),
        (["lazygnn", "block.npz", "--set", "alhpa=1"], "unknown option `alhpa`; did you mean `alpha`?"),
        (
            ["gcn", "block.npz", "--set", "num_parts=4"],
            "method `gcn` has no option `num_parts`; methods that accept",
        ),
        (["lazygnn", "block.npz", "--set", "alpha=2"], "option `alpha` is 2: input should be less than or equal to 1"),
        (["lazygnn", "block.npz", "--set", "parts_per_batch=4"], "`parts_per_batch` is 4, but `num_parts` is 1, which"),
        (["lazygnn", "block.npz", "--set", "halo=paper"], "`halo` is paper, but `num_parts` is 1, which means full"),
        (["lazygnn", "block.npz", "--set", "=5"], "`=5` is not of the form key=value, such as `epochs=5`"),
        (["lazygnn", "block.npz", "--logger", "wandb"], "option `logger` is 'wandb': input should be 'none' or 'tens"),
        (
            ["lazygnn", "block.npz", "--config", "gone.toml"],
            "no file `gone.toml`; give the path of a TOML file of",
        ),
        (["lazygnn", "block.npz", "--device", "tpu"], "unknown device `tpu`; choose auto, cpu or cuda"),
        (["lazygnn", "block.npz", "--set", "metric=r2"], "metric `r2` does not fit a single-label task; choose one of"),
        (["lazygnn", "block.npz", "--seed", "-1"], "option `seed` is -1: input should be greater than or equal to 0"),
    ],
)
def test_an_error_is_one_line_and_leaves_no_files(
    lazygnn: Command, dataset: Path, tmp_path: Path, args: list[str], message: str
) -> None:
    assert_one_line(lazygnn("train", *args), message)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["block.npz"]


def test_a_folder_in_use_is_refused(lazygnn: Command, dataset: Path) -> None:
    first = lazygnn("train", "mlp", dataset, *QUICK, "--out", "run")
    assert first.status == 0
    assert_one_line(
        lazygnn("train", "mlp", dataset, *QUICK, "--out", "run"),
        "`run` exists and is not empty; choose another `--out` or remove it",
    )
    assert json.loads(Path("run/result.json").read_text()) == first.result


@pytest.mark.parametrize(
    "extra",
    [
        ["lazygnn"],
        ["--init-from", "a"],
        ["--seed", "0"],
        ["--set", "lr=1"],
        ["--out", "other"],
        ["--config", "a.toml"],
        ["--logger", "tensorboard"],
    ],
    ids=str,
)
def test_resume_takes_no_other_configuration(lazygnn: Command, trained: Path, extra: list[str]) -> None:
    done = lazygnn("train", *extra, "--resume", trained)
    assert_one_line(done, "`--resume` uses the configuration of the run; it can only be combined with `--root`")


@pytest.mark.parametrize("arguments", [[], ["--quiet"], ["lazygnn"]], ids=str)
def test_train_without_a_method_or_data_set_is_refused(lazygnn: Command, arguments: list[str]) -> None:
    done = lazygnn("train", *arguments)
    assert done.status == 2
    assert "give a method and a data set, such as `lazygnn train lazygnn wordnet-small`" in done.err


def test_several_seeds_print_mean_and_deviation(lazygnn: Command, dataset: Path) -> None:
    done = lazygnn("train", "mlp", dataset, *QUICK, "--seeds", 2, "--seed", 5, "--out", "both")
    assert done.status == 0
    assert done.result["seeds"] == [5, 6]
    assert done.result == json.loads(Path("both/result.json").read_text())
    means = f"test {done.result['test']:.4f} ± {done.result['test_deviation']:.4f}"
    assert done.err.splitlines()[-1].startswith("accuracy over 2 seeds: val ")
    assert done.err.splitlines()[-1].endswith(means)
    again = lazygnn("train", "--resume", "both", "--quiet")
    assert (again.result, again.err) == (done.result, "")
    assert_one_line(lazygnn("train", "mlp", dataset, "--seeds", 0), "`seeds` is 0; give the number of seeds")
    assert_one_line(lazygnn("evaluate", "both"), "`both` holds the runs of several seeds; give one of them, such as ")


def test_a_run_is_trained_longer_or_fine_tuned(lazygnn: Command, dataset: Path) -> None:
    constant = [*QUICK, "--set", "schedule=constant"]
    assert lazygnn("train", "mlp", dataset, *constant, "--out", "run", "--quiet").status == 0
    assert lazygnn("train", "--resume", "run", "--set", "epochs=3", "--quiet").result["epochs"] == 3
    assert_one_line(lazygnn("train", "--resume", "run", "--set", "epochs=many"), "`epochs` is 'many', of type str; ")
    done = lazygnn("train", "--init-from", "run", "--set", "lr=0.001", "--out", "tuned", "--quiet", "--device", "cpu")
    assert (done.status, done.result["epochs"], done.result["method"]) == (0, 3, "mlp")
    assert_one_line(lazygnn("train", "--init-from", "run", "--seeds", 2), "starts all seeds from the same weights")
    assert_one_line(lazygnn("train", "--init-from", "gone"), "`gone` is not a run folder")
    assert lazygnn("train", "mlp", dataset, *QUICK, "--seeds", 1, "--out", "seeds", "--quiet").status == 0
    refused = lazygnn("train", "--resume", "seeds", "--set", "epochs=9")
    assert_one_line(refused, "`seeds` holds several runs; extend one of them, such as `seeds/seed-0`")
