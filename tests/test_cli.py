"""The command line as a shell calls it: in this process, which is faster, and once as a separate program."""

import csv
import json
import os
import runpy
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn import commands
from lazygnn.cli import main
from lazygnn.methods import recipes, resolve

Arrays = dict[str, Any]
KEYS = {"method", "dataset", "seed", "metric", "val", "test", "epochs", "best_epoch", "seconds_per_epoch"}
KEYS |= {"seconds", "eval_seconds", "peak_memory_mib", "run"}
QUICK = ("--set", "epochs=2", "--set", "hidden_channels=4", "--device", "cpu")


@dataclass(frozen=True)
class Done:
    status: object
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The last line on stdout."""
        parsed: dict[str, Any] = json.loads(self.out.splitlines()[-1])
        return parsed


Command = Callable[..., Done]


@pytest.fixture
def lazygnn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*args: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["lazygnn", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capsys.readouterr()
        return Done(stop.value.code, out, err)

    return call


@pytest.fixture
def dataset(tmp_path: Path, block_arrays: Arrays) -> Path:
    path = tmp_path / "block.npz"
    np.savez(path, **block_arrays)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, module_arrays: Arrays) -> Path:
    """A run that tests read and do not change, on a graph with names."""
    folder = tmp_path_factory.mktemp("cli")
    named = {"node_ids": np.array([f"n{i}" for i in range(60)]), "class_name": np.array(["ant", "bee", "cat"])}
    np.savez(folder / "named.npz", **module_arrays | named)
    config = resolve("lazygnn", str(folder / "named.npz"), {"epochs": 4, "hidden_channels": 8}, device="cpu")
    commands.train(config, folder / "run", quiet=True)
    return folder / "run"


@pytest.fixture
def broken(trained: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be damaged."""
    copy = tmp_path / "broken"
    copy.mkdir()
    for path in trained.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    return copy


def assert_one_line(done: Done, message: str) -> None:
    assert done.status == 2
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_table_in_a_file_of_options_is_one_line(lazygnn: Command, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text("[model]\nalpha = 0.2\n")
    done = lazygnn("train", "lazygnn", dataset, "--config", "options.toml")
    assert_one_line(done, "`options.toml` has a table `model`; a file of options has no tables: remove the line")


def test_version(lazygnn: Command) -> None:
    done = lazygnn("--version")
    assert (done.status, done.out, done.err) == (0, f"lazygnn {metadata.version('lazygnn')}\n", "")


def test_an_interrupt_while_the_command_loads_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Impatient:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "lazygnn.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "lazygnn.cli")
    monkeypatch.setattr(sys, "meta_path", [Impatient, *sys.meta_path])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("lazygnn", run_name="__main__")
    assert stop.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_files_of_a_run_have_the_permissions_of_the_umask(lazygnn: Command, dataset: Path) -> None:
    before = os.umask(0o022)
    try:
        lazygnn("train", "lazygnn", dataset, *QUICK, "--out", "run", "--set", "checkpoint_every=1")
    finally:
        os.umask(before)
    files = [path for path in Path("run").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".jsonl", ".safetensors", ".png"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}


def test_a_run_is_used_from_another_folder(
    lazygnn: Command, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = lazygnn("train", "mlp", dataset.name, *QUICK, "--out", "run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert lazygnn("evaluate", "../run", "--device", "cpu").result["test"] == trained.result["test"]
    assert lazygnn("predict", "../run", "--out", "p.csv", "--device", "cpu").status == 0
    assert lazygnn("train", "--resume", "../run").result["test"] == trained.result["test"]
    dataset.unlink()
    assert_one_line(lazygnn("evaluate", "../run"), "block.npz` is not in `")
    assert_one_line(lazygnn("evaluate", "../run"), "; give the folder that has a file of that name with `--root`")


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


def test_set_can_empty_an_option(lazygnn: Command, dataset: Path, tmp_path: Path) -> None:
    dataset.rename(tmp_path / "cora.npz")
    lazygnn("train", "appnp", "cora.npz", *QUICK, "--set", "patience=none", "--out", "run")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["trainer"]["patience"] is None


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
        (["lazygnn", "block.npz", "--epochs", "3"], "`--epochs` is not a flag; use `--set epochs=3`"),
        (["lazygnn", "block.npz", "--hidden-channels=64"], "is not a flag; use `--set hidden_channels=64`"),
        (["--num_parts", "4", "lazygnn", "block.npz"], "is not a flag; use `--set num_parts=4`"),
        (["lazygnn", "block.npz", "--decay-layers", "-1"], "is not a flag; use `--set decay_layers=-1`"),
        (["lazygnn", "block.npz", "--compile", "--quiet"], "is not a flag; use `--set compile=VALUE`"),
        (["lazygnn", "block.npz", "--compile"], "is not a flag; use `--set compile=VALUE`"),
        (["lazygnn", "block.npz", "--set", "alpha=2"], "option `alpha` is 2: input should be less than or equal to 1"),
        (["lazygnn", "block.npz", "--set", "parts_per_batch=4"], "`parts_per_batch` is 4, but `num_parts` is 1, which"),
        (["lazygnn", "block.npz", "--set", "halo=paper"], "`halo` is paper, but `num_parts` is 1, which means full"),
        (["lazygnn", "block.npz", "--set", "alpha"], "`--set alpha` has no value; use `--set alpha=VALUE`"),
        (["lazygnn", "block.npz", "--set", "epochs", "5"], "use `--set epochs=5`, without spaces"),
        (["--set", "lr", "=", "0.1", "lazygnn", "block.npz"], "use `--set lr=0.1`, without spaces"),
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
    lazygnn: Command, dataset: Path, tmp_path: Path, args: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAZYGNN_DATA", raising=False)
    assert_one_line(lazygnn("train", *args), message)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["block.npz"]


def test_an_unknown_flag_is_an_error_of_the_command(lazygnn: Command) -> None:
    done = lazygnn("train", "lazygnn", "block.npz", "--sed", 3)
    assert done.status == 2
    assert "No such option: --sed" in done.err
    assert "--set sed" not in done.err


def test_a_diverging_run_is_one_line(lazygnn: Command, dataset: Path) -> None:
    done = lazygnn("train", "mlp", dataset, "--set", "lr=1e30", "--set", "epochs=20", "--quiet", "--device", "cpu")
    assert_one_line(done, "lower `lr` or set `clip_norm`")


def test_a_folder_in_use_is_refused(lazygnn: Command, dataset: Path) -> None:
    first = lazygnn("train", "mlp", dataset, *QUICK, "--out", "run")
    assert first.status == 0
    assert_one_line(
        lazygnn("train", "mlp", dataset, *QUICK, "--out", "run"),
        "`run` exists and is not empty; choose another `--out` or remove it",
    )
    assert json.loads(Path("run/result.json").read_text()) == first.result


def test_an_invalid_graph_is_one_line(lazygnn: Command, tmp_path: Path, block_arrays: Arrays) -> None:
    np.savez(tmp_path / "block.npz", **block_arrays | {"x": np.full((60, 3), np.nan)})
    assert_one_line(
        lazygnn("train", "mlp", "block.npz"),
        "block.npz: `x` holds nan in columns 0, 1, 2 (180 such values); replace or",
    )


def test_evaluate_reproduces_the_result(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("evaluate", trained, "--device", "cpu")
    assert done.status == 0
    expected = json.loads((trained / "result.json").read_text())
    assert done.result.keys() == KEYS
    for key in KEYS - {"peak_memory_mib"}:
        assert done.result[key] == expected[key]


def test_reports_are_shown_beside_the_json_line_and_written_as_a_page(
    lazygnn: Command, trained: Path, tmp_path: Path
) -> None:
    done = lazygnn("evaluate", trained, "--device", "cpu", "--report")
    assert done.status == 0
    assert len(done.out.splitlines()) == 1
    assert "of 20 test nodes are predicted right; the most frequent class alone" in done.err
    assert "precision" in done.err
    assert lazygnn("predict", trained, "--out", "sure.csv", "--device", "cpu", "--calibrated").status == 0
    done = lazygnn("report", trained, trained, "--out", "report.html", "--device", "cpu")
    assert (done.status, done.out, done.err) == (0, "", "wrote report.html\n")
    assert "<h1>2 runs</h1>" in (tmp_path / "report.html").read_text()
    assert_one_line(lazygnn("report", trained, "--out", "report.pdf"), "choose a name that ends in .html")


def test_evaluate_prints_a_line_for_every_metric(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("evaluate", trained, "--metric", "roc-auc", "--metric", "accuracy", "--device", "cpu")
    first, second = map(json.loads, done.out.splitlines())
    assert first.keys() == second.keys() == KEYS
    assert (first["metric"], second["metric"]) == ("roc-auc", "accuracy")
    assert second["test"] == json.loads((trained / "result.json").read_text())["test"]
    assert_one_line(lazygnn("evaluate", trained, "--metric", "acc"), "metric `acc` does not fit a single-label task; ")


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predict_writes_a_row_for_every_node(lazygnn: Command, trained: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"table.{suffix}"
    if suffix == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
    done = lazygnn("predict", trained, "--out", out, "--device", "cpu")
    assert (done.status, done.out) == (0, "")
    assert f"wrote 60 predictions to {out}" in done.err
    rows = read_csv(out) if suffix == "csv" else parquet.read_table(out).to_pylist()
    assert [row["node"] for row in rows] == [f"n{i}" for i in range(60)]
    assert {row["prediction"] for row in rows} <= {"ant", "bee", "cat"}
    assert all(1 / 3 <= float(row["probability"]) <= 1 for row in rows)
    # the table is right where the score says so
    with np.load(trained.parent / "named.npz") as file:
        names, test = file["class_name"][file["y"]], file["test_mask"]
    hits = [row["prediction"] == name for row, name in zip(rows, names, strict=True)]
    assert np.mean(np.array(hits)[test]) == json.loads((trained / "result.json").read_text())["test"]


def test_predict_on_another_graph_without_labels_and_with_its_own_ids(
    lazygnn: Command, trained: Path, tmp_path: Path
) -> None:
    ids = np.array([70, 80, 90])
    np.savez(tmp_path / "new.npz", edge_index=np.array([[70, 80], [80, 70]]), x=np.eye(3), node_ids=ids)
    done = lazygnn("predict", trained, "--graph", "new.npz", "--out", "new.csv", "--device", "cpu")
    assert done.status == 0
    rows = read_csv(tmp_path / "new.csv")
    assert [row["node"] for row in rows] == ["70", "80", "90"]
    assert {row["prediction"] for row in rows} <= {"ant", "bee", "cat"}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--graph", "new.npz", "--out", "p.csv"], "`new.npz` has 5 features, the run was trained on 3; give a graph"),
        (["--graph", "gone.npz", "--out", "p.csv"], "no file `gone.npz`"),
        (["--out", "p.txt"], "cannot write `p.txt`; choose a name that ends in .csv or .parquet"),
        (["--out", "gone/p.csv"], "cannot write `gone/p.csv`: the folder `gone` does not exist; create it first"),
    ],
)
def test_a_prediction_that_fails_is_one_line(
    lazygnn: Command, trained: Path, tmp_path: Path, args: list[str], message: str
) -> None:
    np.savez(tmp_path / "new.npz", edge_index=np.array([[0, 1], [1, 0]]), x=np.ones((2, 5)))
    assert_one_line(lazygnn("predict", trained, *args), message)
    assert not list(tmp_path.rglob("p.*"))


@pytest.mark.parametrize(
    ("command", "file", "content", "message"),
    [
        ("evaluate", "config.json", None, "is not a run folder: it has no `config.json`; give a folder that `train`"),
        ("evaluate", "config.json", b"{", "cannot read `"),
        ("evaluate", "config.json", b"{}", "is not the configuration of a run"),
        ("evaluate", "config.json", b"[]", "does not hold a JSON object"),
        ("evaluate", "best.safetensors", None, "best.safetensors`"),
        ("evaluate", "best.safetensors", b"garbage", "restore it with `lazygnn train --resume"),
        ("evaluate", "result.json", b"garbage", "cannot read `"),
        ("predict", "best.safetensors", b"", "restore it with `lazygnn train --resume"),
        ("show", "config.json", None, "is not a run folder"),
        ("show", "log.jsonl", b"[1]\n", "log.jsonl`"),
        ("show", "result.json", b"\xff\xff", "cannot read `"),
    ],
)
def test_a_corrupt_run_folder_is_one_line(
    lazygnn: Command, broken: Path, tmp_path: Path, command: str, file: str, content: bytes | None, message: str
) -> None:
    (broken / file).unlink()
    if content is not None:
        (broken / file).write_bytes(content)
    extra = ["--out", tmp_path / "p.csv"] if command == "predict" else []
    done = lazygnn(command, broken, *extra)
    assert done.status == 2
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("error: ")
    assert message in done.err
    assert "Traceback" not in done.err


def test_weights_of_another_shape_are_one_line(lazygnn: Command, broken: Path) -> None:
    config = json.loads((broken / "config.json").read_text())
    config["model"]["hidden_channels"] = 9
    (broken / "config.json").write_text(json.dumps(config))
    assert_one_line(lazygnn("evaluate", broken), "do not fit its configuration")


def test_correct_and_smooth_changes_scores_and_predictions(lazygnn: Command, trained: Path, tmp_path: Path) -> None:
    flags = ["--correct-and-smooth", "--correct-alpha", 0.5, "--smooth-alpha", 0.1, "--scaling", 2, "--device", "cpu"]
    done = lazygnn("evaluate", trained, *flags)
    assert done.status == 0
    values = {"correct_alpha": 0.5, "smooth_alpha": 0.1, "scaling": 2.0, "tolerance": 1e-6}
    assert done.result["correct_and_smooth"] == values
    assert lazygnn("predict", trained, "--out", "p.csv", *flags).status == 0
    with np.load(trained.parent / "named.npz") as file:
        names, test = file["class_name"][file["y"]], file["test_mask"]
    hits = [row["prediction"] == name for row, name in zip(read_csv(tmp_path / "p.csv"), names, strict=True)]
    assert np.mean(np.array(hits)[test]) == done.result["test"]
    plain = lazygnn("evaluate", trained, "--device", "cpu").result
    assert done.result["test"] > plain["test"]
    usual = lazygnn("evaluate", trained, "--correct-and-smooth", "--scaling", "auto", "--device", "cpu").result
    assert usual["correct_and_smooth"] == values | {"correct_alpha": 0.2, "smooth_alpha": 0.2, "scaling": "auto"}


@pytest.mark.parametrize("command", [["evaluate"], ["predict", "--out", "p.csv"]], ids=["evaluate", "predict"])
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--correct-alpha", 0.1], "`--correct-alpha` has no effect without `--correct-and-smooth`; add that, or omit"),
        (["--scaling", "auto"], "`--scaling` has no effect without `--correct-and-smooth`; add that, or omit"),
        (["--correct-and-smooth", "--smooth-alpha", 0], "`smooth_alpha` is 0.0; give a number above 0 and at most 1"),
        (["--correct-and-smooth", "--scaling", "big"], "`scaling` is `big`; give `auto` or a positive number"),
    ],
)
def test_a_wrong_use_of_correct_and_smooth_is_one_line(
    lazygnn: Command, trained: Path, tmp_path: Path, command: list[str], args: list[object], message: str
) -> None:
    assert_one_line(lazygnn(*command, trained, *args), message)
    assert not list(tmp_path.rglob("p.*"))


def test_list_shows_methods_or_the_options_of_one(lazygnn: Command) -> None:
    assert "graphsage" in lazygnn("list").out
    done = lazygnn("list", "lazygnn", "cora")
    assert done.status == 0
    assert "lazygnn, recipe for cora" in done.out
    assert_one_line(lazygnn("list", "lazygnn", "nosuch.npz"), "no file `nosuch.npz`; give the path of an .npz file or ")


def test_prepare_prints_json_on_stdout_and_a_sentence_on_stderr(lazygnn: Command, dataset: Path) -> None:
    done = lazygnn("prepare", dataset, "--num-parts", 4, "--partition", "random", "--num-layers", 3)
    assert done.status == 0
    assert (done.result["num_parts"], done.result["num_layers"]) == (4, 3)
    (words,) = done.err.splitlines()
    assert words.startswith(f"60 nodes, {done.result['edges']} edges, in 4 parts")


def test_show_prints_configuration_log_and_result(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("show", trained)
    assert done.status == 0
    for text in ('"hidden_channels": 8', "training log", '"best_epoch"'):
        assert text in done.out


def test_doctor_prints_versions(lazygnn: Command) -> None:
    done = lazygnn("doctor")
    assert done.status == 0
    assert "safetensors" in done.out


def test_unknown_kernels_are_refused(lazygnn: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "fast")
    assert_one_line(lazygnn("doctor"), "`LAZYGNN_KERNELS` must be `auto` or `reference`, got `fast`")


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


def test_no_arguments_show_the_help(lazygnn: Command) -> None:
    done = lazygnn()
    assert "train" in done.out + done.err
    assert lazygnn("--help").status == 0
    assert lazygnn("train", "-h").status == 0


def test_as_a_separate_program(tmp_path: Path, block_arrays: Arrays) -> None:
    one_way = block_arrays["edge_index"][:, block_arrays["edge_index"][0] < block_arrays["edge_index"][1]]
    np.savez(tmp_path / "block.npz", **block_arrays | {"edge_index": one_way})
    call = [sys.executable, "-m", "lazygnn", "train", "lazygnn", "block.npz", *QUICK, "--quiet"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout).keys() == KEYS
    # two epochs may well predict one class alone
    told = [line for line in done.stderr.splitlines() if "predictions are nearly constant" not in line]
    # one-way edges are made undirected without a warning
    assert told == []
    assert (tmp_path / "runs" / "block-lazygnn-0" / "result.json").is_file()


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


def test_compare_prints_a_table_and_a_verdict_or_json(lazygnn: Command, trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    config = resolve("mlp", str(trained.parent / "named.npz"), {"epochs": 1, "hidden_channels": 4}, device="cpu")
    commands.train(config, other, quiet=True)
    done = lazygnn("compare", trained, other, "--out", "curves.png", "--split", "val")
    assert done.status == 0
    assert "unknown, since they have 1 seed in common" in done.out
    assert Path("curves.png").is_file()
    as_json = lazygnn("compare", trained, other, "--json")
    assert [run["run"] for run in as_json.result["runs"]] == [str(trained), str(other)]
    assert_one_line(lazygnn("compare", trained, tmp_path / "gone"), "gone` is not a run folder")


def test_tune_writes_options_that_train_takes(lazygnn: Command, dataset: Path) -> None:
    pytest.importorskip("optuna")
    done = lazygnn("tune", "mlp", dataset, *QUICK, "--trials", 1, "--out", "search")
    assert done.status == 0
    assert done.err.splitlines()[0].startswith("trial 0: val ")
    assert done.err.splitlines()[-1] == "wrote the best options to search/best.toml"
    again = lazygnn("tune", "--resume", "search", "--trials", 2, "--quiet")
    assert (again.result["complete"], again.err) == (2, "")
    trained = lazygnn("train", "mlp", dataset, "--config", "search/best.toml", "--device", "cpu", "--quiet")
    assert trained.result["val"] == again.result["val"]
    assert_one_line(
        lazygnn("tune", "mlp"), "give a method and a data set, such as `lazygnn tune lazygnn wordnet-small`"
    )
    assert_one_line(lazygnn("tune", "mlp", "--resume", "search"), "`--resume` uses the settings of the search; it can")
    assert_one_line(lazygnn("tune", "mlp", dataset, "--lr", 0.1), "`--lr` is not a flag; use `--set lr=0.1`")


def test_predictions_have_more_columns_and_fewer_rows_on_request(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("predict", trained, "--out", "all.csv", "--probabilities", "--known", "--device", "cpu")
    assert done.status == 0
    rows = read_csv(Path("all.csv"))
    columns = ["node", "prediction", "probability", "probability_ant", "probability_bee", "probability_cat"]
    assert list(rows[0]) == [*columns, "split", "label"]
    with np.load(trained.parent / "named.npz") as file:
        partly = {name: file[name] for name in ("edge_index", "x", "node_ids", "class_name")}
        labels = np.where(file["test_mask"], -1, file["y"])
        assert [row["label"] for row in rows] == file["class_name"][file["y"]].tolist()
        assert [row["split"] == "test" for row in rows] == file["test_mask"].tolist()
    np.savez("partly.npz", **partly, y=labels, train_mask=labels >= 0)
    some = lazygnn("predict", trained, "--graph", "partly.npz", "--out", "some.csv", "--unlabeled", "--device", "cpu")
    assert "wrote 20 predictions to some.csv" in some.err
    nodes = [row["node"] for row in read_csv(Path("some.csv"))]
    assert nodes == [row["node"] for row in rows if row["split"] == "test"]


def test_embeddings_and_another_graph(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("embed", trained, "--out", "rows.npy", "--device", "cpu")
    assert (done.status, done.out) == (0, "")
    assert done.err == "wrote 60 embeddings with 8 channels to rows.npy\n"
    there = lazygnn("evaluate", trained, "--graph", trained.parent / "named.npz", "--device", "cpu")
    assert there.result.keys() == KEYS | {"graph", "labeled"}
    assert there.result["test"] == json.loads((trained / "result.json").read_text())["test"]


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


def test_export_writes_a_folder(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("export", trained, "--out", "plain")
    assert (done.status, done.out) == (0, "")
    assert "use it with `python plain/model.py graph.npz predictions.npy`" in done.err
    assert json.loads(Path("plain/model.json").read_text())["class_names"] == ["ant", "bee", "cat"]
    assert_one_line(lazygnn("export", trained, "--out", "plain"), "`plain` exists; choose another `--out` or remove it")
