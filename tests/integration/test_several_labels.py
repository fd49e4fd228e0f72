"""A threshold that validation has chosen counts wherever labels are predicted."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from lazygnn import commands, load_run, resolve
from lazygnn.commands.evaluation import evaluate_by_metrics
from lazygnn.commands.exporting import export_run
from lazygnn.commands.prediction import write_predictions
from lazygnn.commands.rank_inference import evaluate_with_ranks, predict_with_ranks
from lazygnn.commands.reporting import write_page
from lazygnn.commands.scaling import train_ranks
from lazygnn.data import load_graph
from lazygnn.export import plain
from lazygnn.run.folder import Run
from lazygnn.training.threshold import choose_threshold


@pytest.fixture(scope="module")
def arrays(module_arrays: dict[str, Any]) -> dict[str, Any]:
    """Nodes with one or two of five labels."""
    classes = module_arrays["y"][:, None]
    y = (np.arange(5) == classes) | ((np.arange(5) == classes + 2) & (np.arange(60) % 2 == 0)[:, None])
    return module_arrays | {"y": y.astype(np.int64)}


@pytest.fixture(scope="module")
def run(arrays: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose threshold is below one half."""
    folder = tmp_path_factory.mktemp("several")
    np.savez(folder / "labels.npz", **arrays)
    train(folder / "labels.npz", folder / "run", threshold="validation")
    return folder / "run"


def train(dataset: Path, out: Path, **values: Any) -> dict[str, Any]:
    config = resolve("mlp", str(dataset), {"epochs": 12, "hidden_channels": 8, **values}, device="cpu")
    return commands.train(config, out, quiet=True, curves=False)


def test_the_result_names_it_and_evaluation_repeats_it(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    assert 0 < result["threshold"] < 0.5
    again = commands.evaluate_run(run, device="cpu")
    assert [again[name] for name in ("val", "test", "threshold")] == [
        result[name] for name in ("val", "test", "threshold")
    ]


@pytest.mark.parametrize("calibrated", [False, True])
def test_the_labels_in_a_table_have_the_score_of_the_run(
    run: Path, tmp_path: Path, arrays: dict[str, Any], calibrated: bool
) -> None:
    evaluate_by_metrics(run, device="cpu", report=True)
    write_predictions(run, tmp_path / "labels.csv", device="cpu", calibrated=calibrated)
    with (tmp_path / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    predicted = np.array([[int(row[f"prediction_{label}"]) for label in range(5)] for row in rows])
    test, result = arrays["test_mask"], Run.open(run).result()
    found = f1_score(arrays["y"][test], predicted[test], average="micro")
    assert found == pytest.approx(result["test"], abs=1e-12)
    if not calibrated:
        probability = np.array([[float(row[f"probability_{label}"]) for label in range(5)] for row in rows])
        assert (predicted == (probability > result["threshold"])).all()


def test_a_loaded_run_and_its_report_have_it(run: Path, arrays: dict[str, Any]) -> None:
    loaded, result = load_run(run, device="cpu"), Run.open(run).result()
    table = loaded.predict()
    predicted = np.stack([table[f"prediction_{label}"] for label in range(5)], axis=1)
    test = arrays["test_mask"]
    assert f1_score(arrays["y"][test], predicted[test], average="micro") == pytest.approx(result["test"], abs=1e-12)
    evaluate_by_metrics(run, device="cpu", report=True)
    assert Run.open(run).report()["scores"]["micro-f1"]["test"] == pytest.approx(result["test"], abs=1e-12)


def test_an_exported_network_has_it(run: Path, tmp_path: Path, arrays: dict[str, Any]) -> None:
    description, result = export_run(run, tmp_path / "out"), Run.open(run).result()
    assert description["threshold"] == result["threshold"]
    network = plain.load(tmp_path / "out")
    probability = network.predict(torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["edge_index"]))
    predicted, test = probability.numpy() > description["threshold"], arrays["test_mask"]
    assert f1_score(arrays["y"][test], predicted[test], average="micro") == pytest.approx(result["test"], abs=1e-12)


def test_it_counts_on_another_graph(run: Path, tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "other.npz", **arrays)
    outputs, graph, trained_on = commands.predict_run(run, tmp_path / "other.npz", device="cpu")
    threshold = Run.open(run).result()["threshold"]
    assert graph.task.threshold == trained_on.task.threshold == threshold
    expected = f1_score(arrays["y"], outputs.sigmoid() > threshold, average="micro")
    found = commands.evaluate_run(run, device="cpu", graph_file=tmp_path / "other.npz")
    assert found["labeled"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("threshold", [0.5, 0.3, "validation"])
def test_training_from_its_weights_chooses_anew(run: Path, tmp_path: Path, threshold: float | str) -> None:
    dataset = run.parent / "labels.npz"
    config = resolve("mlp", str(dataset), {"epochs": 1, "hidden_channels": 8, "threshold": threshold}, device="cpu")
    found = commands.train(config, tmp_path / "run", init_from=run, quiet=True, curves=False)
    if threshold == "validation":
        loaded = load_run(tmp_path / "run", device="cpu")
        val = loaded.graph.masks["val"]
        threshold = choose_threshold("micro-f1", loaded.outputs()[val], loaded.graph.y[val])
    assert found["threshold"] == threshold


def test_a_run_without_several_labels_does_not_name_it(tmp_path: Path, module_arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "block.npz", **module_arrays)
    assert "threshold" not in train(tmp_path / "block.npz", tmp_path / "run")
    assert "label_threshold" not in Run.open(tmp_path / "run").load_weights()


def test_a_page_names_it(run: Path, tmp_path: Path) -> None:
    threshold = Run.open(run).result()["threshold"]
    write_page([run], tmp_path / "report.html", device="cpu")
    assert f"Labels with a probability above {threshold:g} are predicted." in (tmp_path / "report.html").read_text()


def test_constant_predictions_are_those_above_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[float] = []
    monkeypatch.setattr(
        "lazygnn.commands.training.describe_constant", lambda _, graph, **__: judged.append(graph.task.threshold)
    )
    result = train(run.parent / "labels.npz", tmp_path / "run", threshold="validation")
    assert judged == [result["threshold"]] != [0.5]


def test_ranks_choose_it_and_predict_with_it(run: Path, tmp_path: Path) -> None:
    values = {"epochs": 12, "num_parts": 4, "parts_per_step": 2, "hidden_channels": 8, "eval_tolerance": 1e-6}
    given = {**values, "threshold": "validation", "lr": 0.05}
    found = train_ranks("lazygnn", str(run.parent / "labels.npz"), given, tmp_path / "run", quiet=True)
    assert found is not None
    assert found["threshold"] < 0.5
    (evaluated,) = evaluate_with_ranks(tmp_path / "run", device="cpu")
    assert evaluated["threshold"] == found["threshold"]
    assert evaluated["test"] == pytest.approx(found["test"], abs=1e-12)
    predict_with_ranks(tmp_path / "run", tmp_path / "ranks.csv", device="cpu")
    write_predictions(tmp_path / "run", tmp_path / "one.csv", device="cpu")
    ranks, one = ((tmp_path / name).read_text().splitlines() for name in ("ranks.csv", "one.csv"))
    labels = [[line.split(",")[1::2] for line in lines] for lines in (ranks, one)]
    assert labels[0] == labels[1]
    assert any("1" in line for line in labels[0][1:])


def test_label_propagation_chooses_it_too(run: Path, tmp_path: Path) -> None:
    dataset = run.parent / "labels.npz"
    scores = {}
    for name, values in {"rule": {}, "half": {"threshold": 0.5}}.items():
        config = resolve("label-propagation", str(dataset), values, graph=load_graph(dataset), device="cpu")
        scores[name] = commands.train(config, tmp_path / name, quiet=True, curves=False)
    assert scores["rule"]["threshold"] < 0.5 == scores["half"]["threshold"]
    assert scores["rule"]["val"] > scores["half"]["val"]
