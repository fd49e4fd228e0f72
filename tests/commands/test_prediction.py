from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lazygnn import commands
from lazygnn.commands.prediction import write_predictions
from lazygnn.config import Config
from lazygnn.correct_smooth import CorrectAndSmooth
from lazygnn.errors import ConfigError, GraphError
from lazygnn.methods import METHODS
from lazygnn.run.predictions import prediction_table

Arrays = dict[str, Any]
Configure = Callable[..., Config]
LEARNING = [method for method in METHODS if method != "label-propagation"]


def test_prediction_is_inference_on_the_graph_of_the_run(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    result = commands.train(configure(dataset, epochs=20), tmp_path / "run", quiet=True)
    logits, graph, trained_on = commands.predict_run(tmp_path / "run", device="cpu")
    assert graph.num_nodes == trained_on.num_nodes == len(logits) == 60
    right = logits.argmax(dim=1) == graph.y
    assert float(right[graph.masks["test"]].double().mean()) == result["test"]


@pytest.mark.parametrize("method", LEARNING)
def test_a_new_graph_needs_no_labels(
    dataset: Path, tmp_path: Path, block_arrays: Arrays, method: str, configure: Configure
) -> None:
    commands.train(configure(dataset, method), tmp_path / "run", quiet=True)
    new = {name: block_arrays[name] for name in ("edge_index", "x")}
    np.savez(tmp_path / "new.npz", **new)
    own, _, _ = commands.predict_run(tmp_path / "run", device="cpu")
    logits, graph, trained_on = commands.predict_run(tmp_path / "run", tmp_path / "new.npz", device="cpu")
    assert torch.equal(logits, own)
    assert graph.task == trained_on.task
    np.savez(tmp_path / "part.npz", edge_index=np.array([[0, 1], [1, 0]]), x=block_arrays["x"][:5])
    logits, _, _ = commands.predict_run(tmp_path / "run", tmp_path / "part.npz", device="cpu")
    assert logits.shape == (5, 3)


def test_a_new_graph_must_have_the_same_features(dataset: Path, tmp_path: Path, configure: Configure) -> None:
    commands.train(configure(dataset), tmp_path / "run", quiet=True)
    np.savez(tmp_path / "new.npz", edge_index=np.array([[0, 1], [1, 0]]), x=np.ones((2, 7)))
    with pytest.raises(GraphError, match=r"`new` has 7 features, the run was trained on 3; give a graph with the same"):
        commands.predict_run(tmp_path / "run", tmp_path / "new.npz", device="cpu")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"edges": "edges.csv"}, "`--edges` are edges of new nodes; give these with `--nodes`"),
        ({"drop_unknown": True}, "`--drop-unknown` has no effect without `--edges`; omit it"),
        ({"nodes": "nodes.csv", "graph_file": "new.npz"}, "`--nodes` adds to the graph of the run, so that `--graph`"),
    ],
)
def test_arguments_are_refused_before_any_work(tmp_path: Path, given: Arrays, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        commands.predict_run(tmp_path / "nowhere", **given)


def test_correct_and_smooth_changes_the_outputs_of_the_model(
    dataset: Path, tmp_path: Path, configure: Configure
) -> None:
    commands.train(configure(dataset, "mlp"), tmp_path / "run", quiet=True)
    plain, graph, _ = commands.predict_run(tmp_path / "run", device="cpu")
    change = CorrectAndSmooth()
    logits, _, trained_on = commands.predict_run(tmp_path / "run", device="cpu", correct_and_smooth=change)
    expected = change(plain.softmax(dim=1), graph)
    torch.testing.assert_close(logits.softmax(dim=1), expected)
    assert not torch.allclose(expected, plain.softmax(dim=1), atol=0.1)
    table = prediction_table(logits, graph, trained_on.task, None)
    np.testing.assert_allclose(table["probability"], expected.amax(dim=1), rtol=1e-5)


def test_correct_and_smooth_reads_the_training_labels_of_a_new_graph(
    dataset: Path, tmp_path: Path, block_arrays: Arrays, configure: Configure
) -> None:
    commands.train(configure(dataset, "mlp"), tmp_path / "run", quiet=True)
    change, new = CorrectAndSmooth(), tmp_path / "new.npz"

    def predict(**arrays: Any) -> torch.Tensor:
        np.savez(new, **arrays)
        return commands.predict_run(tmp_path / "run", new, device="cpu", correct_and_smooth=change)[0]

    own, _, _ = commands.predict_run(tmp_path / "run", device="cpu", correct_and_smooth=change)
    assert torch.equal(predict(**block_arrays), own)
    known = np.where(block_arrays["train_mask"], block_arrays["y"], -1)
    poisoned = {name: block_arrays[name] for name in ("edge_index", "x", "train_mask")}
    assert torch.equal(predict(**poisoned, y=known), own)
    with pytest.raises(GraphError, match="`new` has no training nodes; give it labels `y` and a `train_mask`"):
        predict(edge_index=block_arrays["edge_index"], x=block_arrays["x"])
    with pytest.raises(
        GraphError, match=r"the training labels of graph `new`, .* do not fit a single-label task with 3"
    ):
        predict(**poisoned, y=known + 5 * (known >= 0))


@pytest.mark.parametrize(
    ("y", "names", "message"),
    [
        ([0, 4, 2, -1, 1], None, "are single-label with 5 outputs, the run was trained on single-label with 3; give"),
        ([[0, 1]] * 5, None, "are multi-label with 2 outputs, the run was trained on single-label with 3; give labels"),
        ([0.5, 1.5, 2.5, 3.5, 4.5], None, "are regression with 1 outputs, the run was trained on single-label with 3"),
        ([0, 1, 2, 0, 1], ["c", "b", "a"], "has the classes c, b, a, the run was trained on a, b, c; give the same"),
    ],
    ids=["more classes", "several labels", "numbers", "another order"],
)
@pytest.mark.parametrize("columns", [{"known": True}, {"unlabeled": True}], ids=str)
def test_labels_of_a_new_graph_that_mean_something_else_are_not_written(
    tmp_path: Path,
    block_arrays: Arrays,
    configure: Configure,
    y: list[Any],
    names: list[str] | None,
    message: str,
    columns: Arrays,
) -> None:
    np.savez(tmp_path / "abc.npz", **block_arrays, class_name=np.array(["a", "b", "c"]))
    commands.train(configure(tmp_path / "abc.npz"), tmp_path / "run", quiet=True)
    named: Arrays = {} if names is None else {"class_name": np.array(names)}
    named |= {f"{split}_mask": np.arange(5) == node for node, split in enumerate(("train", "val", "test"))}
    edges = np.array([[0, 1], [1, 0]])
    np.savez(tmp_path / "new.npz", edge_index=edges, x=block_arrays["x"][:5], y=np.array(y), **named)
    arguments = (tmp_path / "run", tmp_path / "out.csv", tmp_path / "new.npz")
    with pytest.raises(GraphError, match=message):
        write_predictions(*arguments, device="cpu", **columns)
    assert not (tmp_path / "out.csv").exists()
    # predictions alone do not read them
    assert write_predictions(*arguments, device="cpu") == 5
