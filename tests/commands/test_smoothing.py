"""Correct and Smooth chooses another threshold for its own probabilities."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lazygnn import commands
from lazygnn.commands.smoothing import warn_of_loss
from lazygnn.config import Config
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.graph import Graph
from lazygnn.training.threshold import choose_threshold

Configure = Callable[..., Config]
CHANGE = CorrectAndSmooth()


@pytest.fixture
def labels(dataset: Path, block_arrays: dict[str, Any]) -> Path:
    """A file of nodes with one or two of five labels."""
    classes = block_arrays["y"][:, None]
    y = (np.arange(5) == classes) | ((np.arange(5) == classes + 2) & (np.arange(60) % 2 == 0)[:, None])
    np.savez(dataset, **block_arrays | {"y": y.astype(np.int64)})
    return dataset


def test_the_threshold_is_chosen_for_the_changed_outputs(labels: Path, tmp_path: Path, configure: Configure) -> None:
    trained = commands.train(configure(labels, "mlp", threshold="validation"), tmp_path / "run", quiet=True)
    result = commands.evaluate_run(tmp_path / "run", device="cpu", correct_and_smooth=CHANGE)
    logits, graph, _ = commands.predict_run(tmp_path / "run", device="cpu", correct_and_smooth=CHANGE)
    val = graph.masks["val"]
    assert result["threshold"] == graph.task.threshold == choose_threshold("micro-f1", logits[val], graph.y[val])
    assert result["threshold"] != trained["threshold"]
    assert result["val"] > trained["val"]


def test_a_given_threshold_is_kept(labels: Path, tmp_path: Path, configure: Configure) -> None:
    commands.train(configure(labels, "mlp", threshold=0.45), tmp_path / "run", quiet=True)
    result = commands.evaluate_run(tmp_path / "run", device="cpu", correct_and_smooth=CHANGE)
    assert result["threshold"] == 0.45


def test_labels_of_another_graph_do_not_choose(labels: Path, tmp_path: Path, configure: Configure) -> None:
    trained = commands.train(configure(labels, "mlp", threshold="validation"), tmp_path / "run", quiet=True)
    given: dict[str, Any] = {"device": "cpu", "correct_and_smooth": CHANGE, "graph_file": labels}
    assert commands.evaluate_run(tmp_path / "run", **given)["threshold"] == trained["threshold"]
    assert commands.predict_run(tmp_path / "run", **given)[1].task.threshold == trained["threshold"]


@pytest.mark.parametrize("helps", [True, False])
def test_a_loss_on_validation_nodes_is_told(
    dataset: Path,
    tmp_path: Path,
    block_arrays: dict[str, Any],
    configure: Configure,
    caplog: pytest.LogCaptureFixture,
    helps: bool,
) -> None:
    if not helps:
        # every block has both classes, and features tell them apart
        y = np.arange(60) % 2
        np.savez(dataset, **block_arrays | {"y": y, "x": np.eye(2)[y]})
    config = configure(dataset, "mlp", epochs=5 if helps else 60, metric="macro-f1")
    trained = commands.train(config, tmp_path / "run", quiet=True)
    caplog.clear()
    result = commands.evaluate_run(tmp_path / "run", device="cpu", correct_and_smooth=CHANGE)
    assert (result["val"] >= trained["val"]) == helps
    told = f"lowers macro-f1 on validation nodes from {trained['val']:.4f} to {result['val']:.4f}; omit"
    assert (told in caplog.text) == (not helps)
    assert ("lowers" in caplog.text) == (not helps)


@pytest.mark.parametrize(("loss", "told"), [(1e-5, False), (1e-3, True)])
def test_a_loss_below_the_digits_shown_is_not_told(
    block_graph: Graph, caplog: pytest.LogCaptureFixture, loss: float, told: bool
) -> None:
    perfect = torch.eye(block_graph.task.num_outputs)[block_graph.y]
    warn_of_loss("accuracy", perfect, block_graph, {"val": 1 - loss})
    assert ("lowers accuracy on validation nodes from 1.0000 to 0.9990" in caplog.text) == told
    assert bool(caplog.records) == told
