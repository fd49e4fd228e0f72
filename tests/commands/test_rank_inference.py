import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.commands import evaluate_run
from lazygnn.commands.prediction import write_predictions
from lazygnn.commands.rank_inference import evaluate_with_ranks, predict_with_ranks
from lazygnn.commands.scaling import train_ranks
from lazygnn.commands.training import train
from lazygnn.data import load_graph
from lazygnn.data.synthetic import block_graph
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.methods import resolve
from lazygnn.partitioning import partition
from lazygnn.run.folder import Run
from lazygnn.run.inputs import fingerprint
from tests.distributed.workers import run_command


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inference")
    block_graph(120, 3, degree=6, in_channels=8, num_classes=3).save(folder / "mine.npz")
    values = {"epochs": 3, "num_parts": 4, "parts_per_step": 2, "hidden_channels": 8, "eval_tolerance": 1e-6}
    train_ranks("lazygnn", str(folder / "mine.npz"), values, folder / "run", quiet=True)
    return folder / "run"


def rows_of(path: Path) -> list[list[str]]:
    with path.open() as file:
        return list(csv.reader(file))


def test_two_ranks_evaluate_and_predict_like_one_process(run: Path, tmp_path: Path) -> None:
    (line, status), (other,) = (
        text.splitlines() for text in run_command(2, ["evaluate", str(run), "--metric=macro-f1"], tmp_path)
    )
    assert (status, other) == ("exit 0", "exit 0")
    expected = evaluate_run(run, metric="macro-f1")
    assert {**json.loads(line), "peak_memory_mib": 0} == {**expected, "peak_memory_mib": 0}
    out, alone = tmp_path / "two.csv", tmp_path / "one.csv"
    first, second = run_command(2, ["predict", str(run), "--out", str(out), "--known"], tmp_path)
    assert (first, second) == (f"wrote 120 predictions to {out}\nexit 0", "exit 0")
    write_predictions(run, alone, known=True)
    head, *rows = rows_of(out)
    assert [row[:2] + row[3:] for row in rows] == [row[:2] + row[3:] for row in rows_of(alone)[1:]]
    assert [float(row[2]) for row in rows] == pytest.approx([float(row[2]) for row in rows_of(alone)[1:]], abs=1e-5)
    assert head == ["node", "prediction", "probability", "split", "label"]


def test_a_flag_that_ranks_do_not_take_is_refused(run: Path, tmp_path: Path) -> None:
    found = run_command(2, ["evaluate", str(run), "--report"], tmp_path)
    assert found[0].startswith("error: several ranks do not take `--report`")
    assert found[1] == "exit 2"


def test_two_ranks_take_a_changed_run_as_it_is(run: Path, tmp_path: Path) -> None:
    changed = tmp_path / "run"
    shutil.copytree(run, changed)
    with (changed / "config.json").open("a") as file:
        file.write("\n")
    out = str(tmp_path / "two.csv")
    for command in (["evaluate", str(changed)], ["predict", str(changed), "--out", out]):
        first, _ = run_command(2, command, tmp_path)
        assert "config.json` has changed since lazygnn wrote it" in first
        first, second = run_command(2, [*command, "--no-verify"], tmp_path)
        assert first.endswith("exit 0"), first
        assert second == "exit 0"


def test_one_process_is_one_rank(run: Path, tmp_path: Path) -> None:
    (found,) = evaluate_with_ranks(run)
    assert found["test"] == evaluate_run(run)["test"]
    assert predict_with_ranks(run, tmp_path / "out.csv", unlabeled=True) == 0
    assert not (run / "histories").exists() or not list((run / "histories").iterdir())


@pytest.mark.parametrize("place", ["file", "folder"])
def test_a_graph_that_has_changed_is_refused(tmp_path: Path, place: str) -> None:
    data, out, table = tmp_path / ("mine.npz" if place == "file" else "mine"), tmp_path / "run", tmp_path / "out.csv"
    graph = block_graph(120, 3, degree=6, in_channels=8, num_classes=3)
    if place == "folder":
        parts = partition(graph, 4)
        graph = replace(graph.permute(parts.order), part_ptr=parts.ptr)
    graph.save(data)
    values = {"epochs": 3, "num_parts": 4, "parts_per_step": 2, "hidden_channels": 8, "eval_tolerance": 1e-6}
    trained = train_ranks("lazygnn", str(data), values, out, quiet=True)
    assert trained is not None
    inputs = Run(out).inputs()
    assert inputs.keys() == {"graph", "names", "class_names", "shards"}
    assert inputs["graph"] == fingerprint(load_graph(data))

    def evaluate(**options: Any) -> list[float]:
        (found,) = evaluate_with_ranks(out, **options)
        return [found["test"], evaluate_run(out, **options)["test"]]

    assert evaluate() == [trained["test"]] * 2
    # a run of an earlier version
    for name in ("graph", "names"):
        Run(out).save_inputs({key: value for key, value in Run(out).inputs().items() if key != name})
    assert evaluate() == [trained["test"]] * 2
    Run(out).save_inputs(inputs)
    replace(graph, y=(graph.y + 1) % 3).save(data)
    message = r"has other content than when run `.*run` was started; restore it"
    with pytest.raises(CheckpointError, match=message):
        evaluate_run(out)
    with pytest.raises(CheckpointError, match=message):
        predict_with_ranks(out, table)
    assert evaluate_run(out, verify=False)["test"] < trained["test"]
    assert predict_with_ranks(out, table, verify=False) == 120
    if place == "folder":
        with pytest.raises(CheckpointError, match=message):
            evaluate_with_ranks(out)
        assert evaluate(verify=False)[0] < trained["test"]
    else:
        # ranks read the sorted copy, which is written anew from the graph of training alone
        shutil.rmtree(out / "parts")
        with pytest.raises(CheckpointError, match=message):
            evaluate_with_ranks(out)
        graph.save(data)
        assert evaluate() == [trained["test"]] * 2
        labels = np.load(out / "parts" / "y.npy")
        np.save(out / "parts" / "y.npy", (labels + 1) % 3)
        with pytest.raises(CheckpointError, match=message):
            evaluate_with_ranks(out)


def test_a_run_of_one_process_is_refused(run: Path, tmp_path: Path) -> None:
    graph = json.loads((run / "config.json").read_text())["dataset"]
    train(resolve("mlp", graph, {"epochs": 1}), tmp_path / "run", quiet=True)
    with pytest.raises(ConfigError, match="trained by one process"):
        evaluate_with_ranks(tmp_path / "run")
