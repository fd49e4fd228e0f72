"""Loads a run into Python: its model with the best weights, its graph, and predictions for any graph."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lazygnn.commands.paths import as_path
from lazygnn.commands.restoring import open_run
from lazygnn.config import Config
from lazygnn.errors import GraphError
from lazygnn.feature_scale import FeatureScale
from lazygnn.graph import Graph, check_graph
from lazygnn.methods import place_graph
from lazygnn.model import Model
from lazygnn.run.predictions import prediction_table
from lazygnn.training import infer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedRun:
    """A run that was loaded with `load_run`.

    Attributes:
        path: The run folder.
        config: The configuration of training.
        model: The model with the best weights, on `device`.
        graph: The graph of training, as it was loaded.
        device: The compute device.
        feature_scale: The scale that features are standardized with; `None` if they are used as they are.
    """

    path: Path
    config: Config
    model: Model
    graph: Graph
    device: torch.device
    feature_scale: FeatureScale | None = None

    def outputs(self, graph: Graph | None = None) -> Tensor:
        """Returns the outputs of every node of the run's graph, or of another one with the same features, [N, C]."""
        return infer(self.model, self._placed(graph))

    def predict(self, graph: Graph | None = None, *, probabilities: bool = False) -> dict[str, np.ndarray]:
        """Returns the columns of `lazygnn predict`: node, prediction and probability.

        Args:
            graph: Another graph with the same features. It needs no labels, unless the run was trained with
                `label_input`.
            probabilities: Whether to add a column for the probability of each class.
        """
        own = self.graph if graph is None else graph
        outputs, names = self.outputs(graph), self.graph.class_names
        return prediction_table(outputs, own, self.model.decide(self.graph.task), names, probabilities=probabilities)

    def embed(self, graph: Graph | None = None) -> Tensor:
        """Returns the values of every node that the last layer reads, [N, H]."""
        self.model.eval()
        return self.model.embed(self._placed(graph))

    def _placed(self, graph: Graph | None) -> Graph:
        if graph is not None:
            check_graph(graph)
            check_read_labels(self.model, graph, self.graph)
        graph = self.graph if graph is None else fitting(graph, self.graph)
        return place_graph(self.config, graph, self.device, self.feature_scale)


def load_run(
    path: Path | str,
    *,
    device: str = "auto",
    root: str | None = None,
    trained_on: Graph | None = None,
    verify: bool = True,
) -> LoadedRun:
    """Loads a run that `lazygnn train` wrote.

    Args:
        path: The run folder.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        trained_on: The graph that the run was trained on, if it is loaded already; by default it is found by its name.
            `LoadedRun.predict` takes another one.
        verify: Whether files of the run, or a graph, that have changed since they were written are refused.

    Examples:
        >>> from pathlib import Path
        >>> from lazygnn import commands, load_run, resolve
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> graph.save("mine.npz")
        >>> config = resolve("mlp", "mine.npz", {"epochs": 2}, graph=graph)
        >>> result = commands.train(config, Path("runs/mine"), quiet=True)
        >>> loaded = load_run("runs/mine")
        >>> loaded.graph.num_nodes, loaded.config.trainer.epochs
        (300, 2)
    """
    path, instead = as_path(path, "path"), "pass another graph to `predict`"
    opened = open_run(path, device, root, trained_on=trained_on, verify=verify, instead=instead)
    model, _ = opened.restore(opened.graph)
    return LoadedRun(path, opened.config, model, opened.graph, opened.device, opened.run.feature_scale())


def fitting(graph: Graph, trained_on: Graph) -> Graph:
    """Returns another graph with the task of training; refuses one with other features."""
    check_graph(graph)
    if graph.in_channels != trained_on.in_channels:
        raise GraphError(
            f"`{graph.name}` has {graph.in_channels} features, the run was trained on {trained_on.in_channels}; "
            "give a graph with the same features"
        )
    return replace(graph, task=trained_on.task)


def check_labels(graph: Graph, trained_on: Graph) -> None:
    """Refuses a graph without labels, and one whose labels mean something else than those of training."""
    if not has_labels(graph):
        raise GraphError(f"graph `{graph.name}` has no labels to evaluate with; use `predict`, or give it labels `y`")
    check_meaning(graph, trained_on)


def has_labels(graph: Graph) -> bool:
    """Returns whether any node of a graph has a label."""
    return bool(graph.task.labeled(graph.y).any())


def check_meaning(graph: Graph, trained_on: Graph) -> None:
    """Refuses a graph whose labels mean something else than those of training."""
    known, task = graph.task, trained_on.task
    fewer = known.kind == "single-label" and known.num_outputs <= task.num_outputs
    if known.kind != task.kind or not (known.num_outputs == task.num_outputs or fewer):
        raise GraphError(
            f"the labels of graph `{graph.name}` are {known.kind} with {known.num_outputs} outputs, the run was "
            f"trained on {task.kind} with {task.num_outputs}; give labels of the same task"
        )
    if None not in (graph.class_names, trained_on.class_names) and graph.class_names != trained_on.class_names:
        raise GraphError(
            f"graph `{graph.name}` has the classes {', '.join(graph.class_names or ())}, the run was trained on "
            f"{', '.join(trained_on.class_names or ())}; give the same classes in the same order"
        )


def check_read_labels(model: Model, graph: Graph, trained_on: Graph) -> None:
    """Refuses another graph with labels that a model would misread; warns if it has none for a model that reads them.

    Args:
        model: With its weights.
        graph: The other graph, with its own task.
        trained_on: The graph of training.
    """
    if not model.reads_labels:
        return
    if "train" in graph.masks:
        check_labels(graph, trained_on)
        return
    logger.warning(
        "graph `%s` has no training labels, but the model reads them; give the graph known labels `y` and a "
        "`train_mask`, or train `lazygnn-deep` with `label_input=0`",
        graph.name,
    )
