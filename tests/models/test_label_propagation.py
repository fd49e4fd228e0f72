import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lazygnn import commands
from lazygnn.data import load_graph
from lazygnn.errors import ConfigError, GraphError
from lazygnn.graph import Graph
from lazygnn.loader import FullLoader
from lazygnn.methods import resolve
from lazygnn.models.label_propagation import LabelPropagation
from lazygnn.task import Task
from lazygnn.transforms import link_similar, smooth_features


def closed_form(graph: Graph, y: torch.Tensor, alpha: float) -> torch.Tensor:
    """`alpha (I - (1 - alpha) A)^-1 Y`, relative to the same for the training mask."""
    train = graph.masks["train"].double()[:, None]
    system = torch.eye(graph.num_nodes, dtype=torch.float64) - (1 - alpha) * graph.adj.to_dense()
    spread: torch.Tensor = alpha * torch.linalg.solve(system, torch.cat((y * train, train), dim=1))
    return spread[:, :-1] / spread[:, -1:]


@pytest.mark.parametrize("alpha", [0.05, 0.5, 1.0])
def test_outputs_are_the_closed_form(block_graph: Graph, alpha: float) -> None:
    graph = block_graph.to(torch.float64)
    out = LabelPropagation(alpha, tolerance=1e-13).infer(graph)
    expected = closed_form(graph, F.one_hot(graph.y).double(), alpha)
    reached = expected.isfinite().all(dim=1)
    torch.testing.assert_close(out.exp()[reached], expected[reached], atol=1e-6, rtol=0)
    assert torch.equal(out.argmax(dim=1)[reached], expected.argmax(dim=1)[reached])
    torch.testing.assert_close(out.softmax(dim=1).sum(dim=1), torch.ones(60, dtype=torch.float64))


def test_class_mass_scales_every_class_to_its_training_fraction(block_graph: Graph) -> None:
    graph = block_graph.to(torch.float64)
    train = graph.masks["train"]
    system = torch.eye(60, dtype=torch.float64) - 0.9 * graph.adj.to_dense()
    spread = torch.linalg.solve(system, F.one_hot(graph.y).double() * train[:, None])
    share = F.one_hot(graph.y[train]).double().mean(dim=0)
    expected = spread * share / spread.sum(dim=0)
    out = LabelPropagation(0.1, tolerance=1e-13, class_mass=True).infer(graph).exp()
    reached = spread.sum(dim=1) > 1e-6
    torch.testing.assert_close(out[reached], (expected / expected.sum(dim=1, keepdim=True))[reached], atol=1e-6, rtol=0)
    numbers = replace(graph, y=graph.y.double()[:, None], task=Task("regression", 1))
    with pytest.raises(
        ConfigError, match="`class_mass` needs a single-label task, the graph has a regression task; remove"
    ):
        LabelPropagation(0.1, class_mass=True).infer(numbers)


def test_class_mass_without_classes_leaves_no_run_folder(block_arrays: dict[str, Any], tmp_path: Path) -> None:
    arrays = block_arrays | {"y": block_arrays["x"][:, 0]}
    np.savez(tmp_path / "numbers.npz", **arrays, task="regression")
    config = resolve("label-propagation", str(tmp_path / "numbers.npz"), {"class_mass": True})
    with pytest.raises(ConfigError, match="`class_mass` needs a single-label task"):
        commands.train(config, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_similar_nodes_are_linked_with_feature_neighbors(arrays_file: Path, tmp_path: Path) -> None:
    values = {"feature_neighbors": 5, "feature_hops": 2, "feature_weight": 1.0, "class_mass": True}
    config = resolve("label-propagation", str(arrays_file), values, device="cpu")
    result = commands.train(config, tmp_path / "run", quiet=True)
    graph = load_graph(arrays_file)
    linked = link_similar(smooth_features(graph, 2), 5, 1.0)
    out = LabelPropagation(0.1, class_mass=True).infer(replace(graph, adj=linked.adj, degree=linked.degree))
    test = graph.masks["test"]
    assert result["test"] == pytest.approx(float((out.argmax(dim=1) == graph.y)[test].double().mean()))
    found, _, _ = commands.predict_run(tmp_path / "run", device="cpu")
    torch.testing.assert_close(torch.as_tensor(found).log_softmax(dim=1), out.log_softmax(dim=1))


@pytest.mark.parametrize(("name", "value"), [("feature_hops", 2), ("feature_weight", 0.5)])
def test_link_options_without_links_are_refused(name: str, value: float) -> None:
    message = f"`{name}` is {value}, but `feature_neighbors` is 0"
    with pytest.raises(ConfigError, match=message):
        resolve("label-propagation", "block", {name: value})


def test_several_labels_and_numbers_are_weighted_means_of_labels(block_arrays: dict[str, Any]) -> None:
    arrays = dict(block_arrays)
    edges, x, y = arrays.pop("edge_index"), arrays.pop("x"), arrays.pop("y")
    many = Graph.from_edges(edges, x, np.stack((y == 0, y < 2), axis=1).astype(float), **arrays, task="multi-label")
    graph = many.to(torch.float64)
    out = LabelPropagation(0.2, tolerance=1e-13).infer(graph)
    torch.testing.assert_close(out.sigmoid(), closed_form(graph, graph.y.double(), 0.2), atol=1e-5, rtol=0)
    numbers = Graph.from_edges(edges, x, x[:, :1], **arrays, task="regression").to(torch.float64)
    out = LabelPropagation(0.2, tolerance=1e-13).infer(numbers)
    torch.testing.assert_close(out, closed_form(numbers, numbers.y.double(), 0.2), atol=1e-6, rtol=0)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5])
def test_far_from_all_labels_a_number_is_between_the_smallest_and_the_largest(alpha: float) -> None:
    """Where a label hardly reaches, the error of the solution is as large as the solution."""
    at = np.arange(300)
    graph = Graph.from_edges(
        np.stack((at[:-1], at[1:])), at[:, None], at % 7 + 1e3, train_mask=at % 200 == 150, task="regression"
    )
    labels = graph.y[graph.masks["train"]]
    out = LabelPropagation(alpha).infer(graph)
    assert float(labels.min()) <= float(out.min())
    assert float(out.max()) <= float(labels.max())


def test_a_node_that_no_label_reaches_gets_the_class_frequencies() -> None:
    graph = Graph.from_edges(
        np.array([[0], [1]]), np.eye(4), np.array([0, 0, 1, 1]), train_mask=np.array([True, True, True, False])
    )
    out = LabelPropagation(0.1).infer(graph).softmax(dim=1)
    torch.testing.assert_close(out[3], torch.tensor([2 / 3, 1 / 3]))


def test_labels_outside_the_training_nodes_are_not_read(block_graph: Graph) -> None:
    poisoned = block_graph.y.clone()
    others = ~block_graph.masks["train"]
    poisoned[others] = (poisoned[others] + 1) % 3
    model = LabelPropagation(0.1)
    assert torch.equal(model.infer(block_graph), model.infer(replace(block_graph, y=poisoned)))
    poisoned[others] = -1
    assert torch.equal(model.infer(block_graph), model.infer(replace(block_graph, y=poisoned)))


def test_a_run_without_weights_is_trained_evaluated_and_resumed(
    block_graph: Graph, tmp_path: Path, arrays_file: Path
) -> None:
    result = commands.train(resolve("label-propagation", str(arrays_file), {}), tmp_path / "run", quiet=True)
    assert result["epochs"] == 0
    assert result["test"] > 0.6
    again = commands.evaluate_run(tmp_path / "run")
    assert (again["val"], again["test"]) == (result["val"], result["test"])
    assert json.loads((tmp_path / "run" / "result.json").read_text())["test"] == result["test"]
    assert commands.resume(tmp_path / "run", quiet=True)["test"] == result["test"]
    out, _, _ = commands.predict_run(tmp_path / "run")
    assert out.shape == (60, 3)


@pytest.fixture
def arrays_file(block_arrays: dict[str, Any], tmp_path: Path) -> Path:
    np.savez(tmp_path / "block.npz", **block_arrays)
    return tmp_path / "block.npz"


def test_training_epochs_are_refused(block_graph: Graph, arrays_file: Path, tmp_path: Path) -> None:
    (batch,) = FullLoader(block_graph, 0)
    with pytest.raises(ConfigError, match="has no weights to train; set `epochs=0`"):
        LabelPropagation(0.1)(batch)
    with pytest.raises(ConfigError, match="set `epochs=0`"):
        commands.train(resolve("label-propagation", str(arrays_file), {"epochs": 3}), tmp_path / "run", quiet=True)


def test_a_graph_without_training_nodes_is_refused(block_graph: Graph) -> None:
    with pytest.raises(GraphError, match="has no training nodes"):
        LabelPropagation(0.1).infer(replace(block_graph, masks={}))
    with pytest.raises(ValueError, match=r"`alpha` must be in \(0, 1\], got 0"):
        LabelPropagation(0.0)
