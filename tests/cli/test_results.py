"""Commands about one run."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.helpers import KEYS, QUICK, Command, assert_one_line, read_csv


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


def test_evaluate_reproduces_the_result(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("evaluate", trained, "--device", "cpu")
    assert done.status == 0
    expected = json.loads((trained / "result.json").read_text())
    assert done.result.keys() == KEYS
    for key in KEYS - {"peak_memory_mib"}:
        assert done.result[key] == expected[key]


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
        (["--graph", "new.npz", "--out", "p.csv"], "`new` has 5 features, the run was trained on 3; give a graph"),
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
        ("evaluate", "config.json", b"{}", "has changed since lazygnn wrote it; restore it, or take it as it is with"),
        ("evaluate", "digests.json", b"{}", "`digests.json` was not written by lazygnn; restore `"),
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
    for command in (["evaluate"], ["predict", "--out", "p.csv"], ["embed", "--out", "p.npy"], ["export", "--out", "p"]):
        changed = "config.json` has changed since lazygnn wrote it"
        assert_one_line(lazygnn(command[0], broken, *command[1:]), changed)
        assert_one_line(lazygnn(command[0], broken, *command[1:], "--no-verify"), "do not fit its configuration")


def test_a_changed_result_is_trained_again_unless_it_is_taken_as_it_is(lazygnn: Command, broken: Path) -> None:
    result = json.loads((broken / "result.json").read_text())
    (broken / "result.json").write_text(json.dumps(result | {"test": 2.0}))
    assert_one_line(lazygnn("evaluate", broken), f"restore it with `lazygnn train --resume {broken}`")
    assert lazygnn("train", "--resume", broken, "--no-verify", "--quiet").result["test"] == 2.0
    assert lazygnn("train", "--resume", broken, "--quiet").result["test"] == result["test"]


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


def test_show_prints_configuration_log_and_result(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("show", trained)
    assert done.status == 0
    for text in ('"hidden_channels": 8', "training log", '"best_epoch"'):
        assert text in done.out


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
    assert there.result.keys() == KEYS | {"graph", "labeled", "labeled_nodes"}
    assert there.result["test"] == json.loads((trained / "result.json").read_text())["test"]


def test_export_writes_a_folder(lazygnn: Command, trained: Path) -> None:
    done = lazygnn("export", trained, "--out", "plain")
    assert (done.status, done.out) == (0, "")
    assert "use it with `python plain/model.py graph.npz predictions.npy`" in done.err
    assert json.loads(Path("plain/model.json").read_text())["class_names"] == ["ant", "bee", "cat"]
    assert_one_line(lazygnn("export", trained, "--out", "plain"), "`plain` exists; choose another `--out` or remove it")


@pytest.mark.parametrize(
    "command", [("show",), ("compare", "--json"), ("report",), ("train", "--quiet", "--set", "epochs=1", "--init-from")]
)
def test_every_command_takes_a_changed_run_as_it_is(lazygnn: Command, broken: Path, command: tuple[str, ...]) -> None:
    args = (*command, broken, broken) if command[0] == "compare" else (*command, broken)
    with (broken / "config.json").open("a") as file:
        file.write("\n")
    assert_one_line(lazygnn(*args), "config.json` has changed since lazygnn wrote it; ")
    assert lazygnn(*args, "--no-verify").status == 0
