"""The command as a shell would call it; in this process, to be quick, and once as a program of its own."""

import csv
import itertools
import json
import os
import runpy
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn import workflow
from lazygnn.cli import main
from lazygnn.methods import METHODS, find_method, recipe, resolve

Arrays = dict[str, Any]
KEYS = {"method", "dataset", "seed", "metric", "val", "test", "epochs", "best_epoch", "seconds_per_epoch"}
KEYS |= {"peak_memory_mib", "run"}
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
    workflow.train(config, folder / "run", quiet=True)
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


def test_list_shows_methods_recipes_and_data_sets(lazygnn: Command) -> None:
    done = lazygnn("list")
    assert done.status == 0
    for name in (*METHODS, "cora", "wordnet-small", "ogbn-arxiv"):
        assert name in done.out


@pytest.mark.parametrize("method", list(METHODS))
def test_list_shows_every_option_of_a_method(lazygnn: Command, method: str) -> None:
    done = lazygnn("list", method)
    assert done.status == 0
    for name, field in find_method(method).options.model_fields.items():
        assert name in done.out
        assert str(field.description).split(";")[0] in done.out
    assert "weight_decay" in done.out


def test_list_shows_what_an_option_may_be_and_what_the_recipe_says(lazygnn: Command) -> None:
    def row(option: str, *args: str) -> list[str]:
        (line,) = [line for line in lazygnn("list", *args).out.splitlines() if line.startswith(f"│ {option} ")]
        return [cell.strip() for cell in line.strip("│").split("│")[:4]]

    values = recipe("lazygnn", "cora")
    assert row("alpha", "lazygnn", "cora") == ["alpha", "0.1", str(values["alpha"]), "number > 0 and <= 1"]
    assert row("start", "lazygnn", "cora") == ["start", "drift", "", "drift or mix"]
    assert row("patience", "lazygnn", "cora") == ["patience", "", str(values["patience"]), "integer >= 1 or none"]
    assert row("epochs", "label-propagation")[:3] == ["epochs", "200", "0"]
    assert row("keep_batches", "cluster-gcn")[1::2] == ["true", "true or false"]


def test_list_marks_the_recipes_whose_data_are_not_for_download(lazygnn: Command) -> None:
    recipes, legend = lazygnn("list", "lazygnn").out.splitlines()[-2:]
    assert recipes == "recipes for: cora, citeseer, pubmed, wordnet-small, arxiv*, wordnet*"
    assert legend == "* not for download: needs `<name>.npz` of your own in the folder of data files (`--root`)"


def test_list_refuses_a_data_set_that_there_is_not(
    lazygnn: Command, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAZYGNN_DATA", str(tmp_path / "env"))
    assert_one_line(lazygnn("list", "lazygnn", "nosuch.npz"), "no file `nosuch.npz`; give the path of an .npz file or ")
    message = f"unknown data set `nosuch`: no file `{tmp_path / 'env' / 'nosuch'}.npz`; let `--root` or `LAZYGNN_DATA` "
    assert_one_line(lazygnn("list", "lazygnn", "nosuch"), message)
    # one without a recipe for this method, one of the recipes alone, and a file
    for name, source in (("reddit", "default recipe"), ("arxiv", "recipe for arxiv"), (str(dataset), "default recipe")):
        done = lazygnn("list", "lazygnn", name)
        assert done.status == 0
        assert f"training, {source}" in done.out
        assert f"lazygnn, {source}" in done.out
    (tmp_path / "env").mkdir()
    dataset.rename(tmp_path / "env" / "nosuch.npz")
    assert lazygnn("list", "lazygnn", "nosuch").status == 0
    assert lazygnn("list", "lazygnn", "nosuch", "--root", tmp_path).status == 2
    assert_one_line(lazygnn("list", "lazygnn", "nosuch.npz"), "no file `nosuch.npz`; say `nosuch`")
    monkeypatch.delenv("LAZYGNN_DATA")
    assert lazygnn("list", "lazygnn", "nosuch", "--root", tmp_path / "env").status == 0


def test_a_table_in_a_file_of_options_is_one_line(lazygnn: Command, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "options.toml").write_text("[model]\nalpha = 0.2\n")
    done = lazygnn("train", "lazygnn", dataset, "--config", "options.toml")
    assert_one_line(done, "`options.toml` has a table `model`; a file of options has no tables: remove the line")


def test_prepare_says_in_words_what_its_json_counts(lazygnn: Command, dataset: Path) -> None:
    done = lazygnn("prepare", dataset, "--num-parts", 4, "--partition", "random", "--num-layers", 3)
    assert done.status == 0
    found = done.result
    assert (found["nodes"], found["smallest_part"], found["largest_part"]) == (60, 15, 15)
    (words,) = done.err.splitlines()
    assert words.startswith(f"60 nodes, {found['edges']} edges, in 4 parts of 15 to 15 nodes; ")
    assert f"; {100 * found['edge_cut']:.1f}% of the edges lie between parts; nodes around a part, for each" in words
    assert f"{found['mean_halo']:.2f} within 1 hop (at most {found['max_halo']:.2f})" in words
    assert words.endswith(f"{found['mean_deep_halo']:.2f} within 3 hops")


def test_names_of_options_are_whole_on_a_narrow_terminal(lazygnn: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "checkpoint_minutes" in lazygnn("list", "lazygnn").out


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


def test_everyone_may_read_a_run_as_far_as_the_umask_goes(lazygnn: Command, dataset: Path) -> None:
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
    assert_one_line(lazygnn("evaluate", "../run"), "; say where it is with `--root`")


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
    names = {"config.json", "chosen.json", "log.jsonl", "best.safetensors", "curves.png", "result.json"}
    assert names <= {path.name for path in run.iterdir()}
    config = json.loads((run / "config.json").read_text())
    assert (config["method"], config["trainer"]["epochs"], config["model"]["hidden_channels"]) == ("lazygnn", 2, 4)
    assert [json.loads(line)["epoch"] for line in (run / "log.jsonl").read_text().splitlines()] == [1, 2]
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((run / "result.json").read_text()).keys() == KEYS


def test_set_comes_before_the_file_and_the_file_before_the_recipe(
    lazygnn: Command, dataset: Path, tmp_path: Path
) -> None:
    dataset.rename(tmp_path / "cora.npz")
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
        (["lazygnn", "gone"], "unknown data set `gone`: no file `data/gone.npz`; let `--root` or `LAZYGNN_DATA` name "),
        (
            ["lazygnn", "arxiv"],
            "unknown data set `arxiv`: no file `data/arxiv.npz`; let `--root` or `LAZYGNN_DATA`",
        ),
        (["lazygnn", "block.npz", "--set", "alhpa=1"], "unknown option `alhpa`; did you mean `alpha`?"),
        (
            ["gcn", "block.npz", "--set", "num_parts=4"],
            "method `gcn` has no option `num_parts`; methods that accept",
        ),
        (["lazygnn", "block.npz", "--epochs", "3"], "`--epochs` is no flag; give the option with `--set epochs=3`"),
        (["lazygnn", "block.npz", "--hidden-channels=64"], "give the option with `--set hidden_channels=64`"),
        (["--num_parts", "4", "lazygnn", "block.npz"], "give the option with `--set num_parts=4`"),
        (["lazygnn", "block.npz", "--decay-layers", "-1"], "give the option with `--set decay_layers=-1`"),
        (["lazygnn", "block.npz", "--compile", "--quiet"], "give the option with `--set compile=VALUE`"),
        (["lazygnn", "block.npz", "--compile"], "give the option with `--set compile=VALUE`"),
        (["lazygnn", "block.npz", "--set", "alpha=2"], "option `alpha` is 2: input should be less than or equal to 1"),
        (["lazygnn", "block.npz", "--set", "parts_per_batch=4"], "`parts_per_batch` is 4, but `num_parts` is 1, which"),
        (["lazygnn", "block.npz", "--set", "halo=paper"], "`halo` is paper, but `num_parts` is 1, which means full"),
        (["lazygnn", "block.npz", "--set", "alpha"], "`alpha` is not of the form key=value"),
        (
            ["lazygnn", "block.npz", "--config", "gone.toml"],
            "no file `gone.toml`; give the path of a TOML file of",
        ),
        (["lazygnn", "block.npz", "--device", "tpu"], "unknown device `tpu`; choose auto, cpu or cuda"),
        (["lazygnn", "block.npz", "--set", "metric=r2"], "metric `r2` does not fit a single-label task; choose one of"),
        (["lazygnn", "block.npz", "--seed", "-1"], "option `seed` is -1: input should be greater than or equal to 0"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(
    lazygnn: Command, dataset: Path, tmp_path: Path, args: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAZYGNN_DATA", raising=False)
    assert_one_line(lazygnn("train", *args), message)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["block.npz"]


def test_a_flag_that_is_no_option_either_is_answered_by_the_command(lazygnn: Command) -> None:
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


def test_a_broken_graph_is_one_line(lazygnn: Command, tmp_path: Path, block_arrays: Arrays) -> None:
    np.savez(tmp_path / "block.npz", **block_arrays | {"x": np.full((60, 3), np.nan)})
    assert_one_line(lazygnn("train", "mlp", "block.npz"), "block.npz: `x` holds nan (180 such values); replace or")


def test_evaluate_reproduces_the_result(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("evaluate", trained, "--device", "cpu")
    assert done.status == 0
    expected = json.loads((trained / "result.json").read_text())
    assert done.result.keys() == KEYS
    for key in KEYS - {"peak_memory_mib"}:
        assert done.result[key] == expected[key]


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
        (["--out", "gone/p.csv"], "cannot write `gone/p.csv`: there is no folder `gone`; create it first"),
    ],
)
def test_a_prediction_that_cannot_be_made_is_one_line(
    lazygnn: Command, trained: Path, tmp_path: Path, args: list[str], message: str
) -> None:
    np.savez(tmp_path / "new.npz", edge_index=np.array([[0, 1], [1, 0]]), x=np.ones((2, 5)))
    assert_one_line(lazygnn("predict", trained, *args), message)
    assert not list(tmp_path.rglob("p.*"))


def test_show_prints_configuration_course_and_result(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("show", trained)
    assert done.status == 0
    result = json.loads((trained / "result.json").read_text())
    for text in ('"hidden_channels": 8', "course", '"best_epoch"', str(result["test"])):
        assert text in done.out


def test_show_prints_what_was_taken_for_options_that_leave_it_open(lazygnn: Command, broken: Path) -> None:
    taken = ['"device": "cpu"', '"metric": "accuracy"', '"response": "fitted"', '"cuda_graphs": "off"', '"beta": 0.1']
    out = lazygnn("show", broken).out
    assert [text for text in taken if text not in out] == []
    assert "auto" not in out
    # a run of earlier days
    (broken / "chosen.json").unlink()
    assert '"response": "auto"' in lazygnn("show", broken).out


def table(out: str, title: str, bar: str = "│") -> list[list[str]]:
    """The rows of a table that `show` prints, cell by cell; its head has another bar."""
    lines = out.splitlines()
    below = lines[next(at for at, line in enumerate(lines) if line.strip() == title) :]
    rows = itertools.takewhile(lambda line: not line.startswith("└"), below)
    return [[cell.strip() for cell in line.strip(bar).split(bar)] for line in rows if line.startswith(bar)]


def write_log(run: Path, epochs: int, eval_every: int, diagnose_every: int) -> list[dict[str, Any]]:
    look = {"mean_age": 1234.5, "drift_norm": 0.25, "fixed_point_error": 0.125, "gradient_cosine": -0.5}
    log: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        scores = dict.fromkeys(("train", "val", "test"), epoch / 10000)
        due = {every: epoch % every == 0 or epoch == epochs for every in (eval_every, diagnose_every)}
        looks = {"scores": scores if due[eval_every] else None, "laziness": look if due[diagnose_every] else None}
        log.append({"epoch": epoch, "loss": 1234.5, "seconds": 123.456, "lr": 0.01} | looks)
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    return log


def test_show_cuts_no_number_on_a_narrow_terminal(
    lazygnn: Command, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    # the exact gradient is looked at too: five numbers
    options = ("--set", "epochs=6", "--set", "eval_every=2", "--set", "diagnose_every=2")
    assert lazygnn("train", "lazygnn", dataset, *QUICK, *options, "--out", "run").status == 0
    done = lazygnn("show", "run")
    assert "…" not in done.out
    last = json.loads(Path("run/log.jsonl").read_text().splitlines()[-1])
    scores = [f"{last['scores'][split]:.4f}" for split in ("train", "val", "test")]
    assert table(done.out, "course")[-1] == ["6", f"{last['loss']:.4f}", *scores, f"{last['seconds']:.3f}"]
    assert len(last["laziness"]) == 5
    assert table(done.out, "laziness")[-1] == ["6", *(f"{value:.3f}" for value in last["laziness"].values())]
    # the names of the log and the docs, in two lines
    assert [*map("".join, zip(*table(done.out, "laziness", "┃"), strict=True))] == ["epoch", *last["laziness"]]


@pytest.mark.parametrize(
    ("every", "course", "laziness"),
    [
        # every look falls on an epoch with scores
        ((10, 20), range(20, 401, 20), range(20, 401, 20)),
        ((1, 20), range(20, 401, 20), range(20, 401, 20)),
        # looks and scores hardly meet
        ((10, 95), range(20, 401, 20), [95, 190, 285, 380, 400]),
        # hardly any scores
        ((150, 401), sorted([*range(20, 401, 20), 150]), [400]),
    ],
)
def test_show_prefers_epochs_with_scores(
    lazygnn: Command, broken: Path, every: tuple[int, int], course: Iterable[int], laziness: Iterable[int]
) -> None:
    log = write_log(broken, 400, *every)
    done = lazygnn("show", broken)
    rows = table(done.out, "course")
    assert [int(row[0]) for row in rows] == list(course)
    assert [int(row[0]) for row in table(done.out, "laziness")] == list(laziness)
    # scores wherever there are some
    assert [row[3] != "" for row in rows] == [log[epoch - 1]["scores"] is not None for epoch in course]
    assert rows[-1][2:5] == ["0.0400"] * 3


def test_show_of_a_run_that_has_stopped_between_two_scores(lazygnn: Command, broken: Path) -> None:
    lines = write_log(broken, 100, 10, 5)[:98]
    (broken / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    epochs = [int(row[0]) for row in table(lazygnn("show", broken).out, "course")]
    assert epochs == [*range(10, 100, 10), 98]


def test_show_of_a_run_that_has_not_ended(lazygnn: Command, broken: Path) -> None:
    (broken / "result.json").unlink()
    (broken / "log.jsonl").unlink()
    done = lazygnn("show", broken)
    assert done.status == 0
    assert "training has not ended" in done.out


def test_doctor_names_versions(lazygnn: Command) -> None:
    done = lazygnn("doctor")
    assert done.status == 0
    for text in ("lazygnn", "python", "torch", "GPU", "kernels", "safetensors", "pymetis"):
        assert text in done.out


def test_doctor_refuses_kernels_that_there_are_not(lazygnn: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_KERNELS", "fast")
    done = lazygnn("doctor")
    assert done.status == 2
    assert "`LAZYGNN_KERNELS` must be `auto` or `reference`, got `fast`" in done.err


@pytest.mark.parametrize(
    ("command", "file", "content", "message"),
    [
        ("evaluate", "config.json", None, "is not a run folder: it has no `config.json`; give a folder that `train`"),
        ("evaluate", "config.json", b"{", "cannot read `"),
        ("evaluate", "config.json", b"{}", "is not the configuration of a run"),
        ("evaluate", "config.json", b"[]", "does not hold a JSON object"),
        ("evaluate", "best.safetensors", None, "best.safetensors`"),
        ("evaluate", "best.safetensors", b"garbage", "go on with `lazygnn train --resume"),
        ("evaluate", "result.json", b"garbage", "cannot read `"),
        ("predict", "best.safetensors", b"", "go on with `lazygnn train --resume"),
        ("show", "config.json", None, "is not a run folder"),
        ("show", "log.jsonl", b"[1]\n", "log.jsonl`"),
        ("show", "result.json", b"\xff\xff", "cannot read `"),
    ],
)
def test_a_broken_run_folder_is_one_line(
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


def test_no_arguments_show_the_help(lazygnn: Command) -> None:
    done = lazygnn()
    assert "train" in done.out + done.err
    assert lazygnn("--help").status == 0
    assert lazygnn("train", "-h").status == 0


def test_as_a_program_of_its_own(tmp_path: Path, block_arrays: Arrays) -> None:
    one_way = block_arrays["edge_index"][:, block_arrays["edge_index"][0] < block_arrays["edge_index"][1]]
    np.savez(tmp_path / "block.npz", **block_arrays | {"edge_index": one_way})
    call = [sys.executable, "-m", "lazygnn", "train", "lazygnn", "block.npz", *QUICK, "--quiet"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout).keys() == KEYS
    assert done.stderr.splitlines() == [
        "WARNING: 228 of 228 edges led one way only and were made two-way; to silence this, give both directions "
        "alike, or set `logging.getLogger('lazygnn').setLevel('ERROR')`"
    ]
    assert (tmp_path / "runs" / "block-lazygnn-0" / "result.json").is_file()


@pytest.mark.parametrize("arguments", [[], ["--quiet"], ["lazygnn"]], ids=str)
def test_train_without_a_method_or_data_set_says_what_to_give(lazygnn: Command, arguments: list[str]) -> None:
    done = lazygnn("train", *arguments)
    assert done.status == 2
    assert "give a method and a data set, such as `lazygnn train lazygnn wordnet-small`" in done.err
