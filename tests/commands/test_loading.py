import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import lazygnn
from lazygnn import commands
from lazygnn.commands.embedding import write_embeddings
from lazygnn.commands.loading import check_labels
from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.errors import CheckpointError, ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.run.folder import RESULT, WEIGHTS
from lazygnn.task import Task
from lazygnn.training import evaluate

Arrays = dict[str, Any]
Configure = Callable[..., Config]


def test_a_run_is_model_graph_and_predictions(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    # features are normalized and parts permuted in training, not in what is returned
    config = configure(dataset, normalize_features=True, num_parts=3, partition="random")
    result = commands.train(config, tmp_path / "run", quiet=True)
    run = lazygnn.load_run(str(tmp_path / "run"), device="cpu")
    logits, graph, _ = commands.predict_run(tmp_path / "run", device="cpu")
    assert torch.equal(run.outputs(), logits)
    assert torch.equal(run.graph.y, graph.y)
    table = run.predict(probabilities=True)
    assert np.mean((table["prediction"] == graph.y.numpy())[graph.masks["test"].numpy()]) == result["test"]
    assert table["probability_2"].shape == (60,)
    assert run.embed().shape == (60, 8)
    assert run.config.trainer.epochs == 3


def test_another_graph_needs_the_same_features_and_no_labels(
    dataset: Path, tmp_path: Path, path_graph: Graph, configure: Configure
) -> None:
    commands.train(configure(dataset, "gcn"), tmp_path / "run", quiet=True)
    run = lazygnn.load_run(tmp_path / "run", device="cpu")
    unlabeled = Graph.from_edges(np.array([[0, 1], [1, 0]]), np.eye(3)[:2])
    assert run.outputs(unlabeled).shape == (2, 3)
    assert run.predict(unlabeled)["prediction"].shape == (2,)
    assert run.embed(path_graph).shape == (4, 8)
    wide = Graph.from_edges(np.array([[0, 1], [1, 0]]), np.ones((2, 7)), name="wide")
    with pytest.raises(GraphError, match=r"`wide` has 7 features, the run was trained on 3; give a graph with"):
        run.predict(wide)


def test_the_model_of_a_run_can_be_used_with_the_library(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    result = commands.train(configure(dataset, "mlp"), tmp_path / "run", quiet=True)
    run = lazygnn.load_run(tmp_path / "run", device="cpu")
    assert evaluate(run.model, run.graph)["test"] == result["test"]


def test_what_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a run folder"):
        lazygnn.load_run(tmp_path)
    with pytest.raises(ConfigError, match=r"`path` is 3, of type int; give a path"):
        lazygnn.load_run(3)  # type: ignore[arg-type]


def test_a_stopped_run_is_evaluated_and_predicted_with(
    dataset: Path, tmp_path: Path, configure: Configure, caplog: pytest.LogCaptureFixture
) -> None:
    result = commands.train(configure(dataset), tmp_path / "run", quiet=True)
    # as if it had been killed before its end
    (tmp_path / "run" / RESULT).unlink()
    (tmp_path / "run" / WEIGHTS).unlink()
    again = commands.evaluate_run(tmp_path / "run", device="cpu")
    assert (again["val"], again["test"]) == (result["val"], result["test"])
    assert f"using its best weights so far, of epoch {result['best_epoch']}" in caplog.text
    assert len(commands.predict_run(tmp_path / "run", device="cpu")[0]) == 60


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"y": torch.full((60,), -1)},
            "graph `block` has no labels to evaluate with; use `predict`, or",
        ),
        (
            {"task": Task("single-label", 4)},
            "are single-label with 4 outputs, the run was trained on",
        ),
        ({"task": Task("multi-label", 3), "y": torch.ones(60, 3)}, "are multi-label with 3 outputs, the run was"),
        ({"class_names": ("a", "c", "b")}, "has the classes a, c, b, the run was trained on a, b, c; give the same"),
    ],
)
def test_labels_of_another_meaning_are_refused(block_graph: Graph, change: dict[str, Any], message: str) -> None:
    named = replace(block_graph, class_names=("a", "b", "c"))
    check_labels(block_graph, named)
    # a class may be missing
    check_labels(replace(block_graph, task=Task("single-label", 2)), named)
    with pytest.raises(GraphError, match=message):
        check_labels(replace(named, **change), named)


@pytest.fixture
def reader(dataset: Path, tmp_path: Path, configure: Configure) -> Path:
    """Returns a run that reads training labels."""
    commands.train(configure(dataset, "lazygnn-deep", label_input=0.5, beside=[]), tmp_path / "reader", quiet=True)
    return tmp_path / "reader"


USES: dict[str, Callable[[Path, Path], object]] = {
    "predict": lambda run, graph: commands.predict_run(run, graph, device="cpu"),
    "embed": lambda run, graph: write_embeddings(run, graph.with_suffix(".npy"), graph, device="cpu"),
    "load_run": lambda run, graph: lazygnn.load_run(run, device="cpu").predict(load_graph(graph)),
}


@pytest.mark.parametrize("use", USES)
def test_a_graph_without_the_labels_that_a_model_reads_is_reported(
    reader: Path, dataset: Path, tmp_path: Path, block_arrays: Arrays, caplog: pytest.LogCaptureFixture, use: str
) -> None:
    np.savez(tmp_path / "bare.npz", x=block_arrays["x"], edge_index=block_arrays["edge_index"])
    with caplog.at_level(logging.WARNING):
        USES[use](reader, dataset)
        assert "reads them" not in caplog.text
        USES[use](reader, tmp_path / "bare.npz")
    assert "graph `bare` has no training labels, but the model reads them" in caplog.text


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"y": np.arange(60) % 4}, "are single-label with 4 outputs, the run was trained on single-label with 3"),
        ({"y": np.linspace(0, 1, 60)}, "are regression with 1 outputs, the run was trained on single-label with 3"),
        ({"class_name": np.array(["c", "b", "a"])}, "has the classes c, b, a, the run was trained on a, b, c"),
    ],
    ids=["more classes", "numbers", "other order"],
)
def test_labels_that_a_model_would_misread_are_refused(
    dataset: Path, tmp_path: Path, block_arrays: Arrays, configure: Configure, use: str, changed: Arrays, message: str
) -> None:
    np.savez(dataset, **block_arrays, class_name=np.array(["a", "b", "c"]))
    np.savez(tmp_path / "changed.npz", **block_arrays | changed)
    for name, share in {"reader": 0.5, "other": 0.0}.items():
        commands.train(configure(dataset, "lazygnn-deep", beside=[], label_input=share), tmp_path / name, quiet=True)
    with pytest.raises(GraphError, match=message):
        USES[use](tmp_path / "reader", tmp_path / "changed.npz")
    # a model that reads none accepts them
    USES[use](tmp_path / "other", tmp_path / "changed.npz")
