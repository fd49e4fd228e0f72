"""Restores the graph and the model of an earlier run."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from lazygnn.config import Config
from lazygnn.data import load_graph
from lazygnn.data.datasets import EMBEDDED, data_root
from lazygnn.data.folder_header import HEADER
from lazygnn.errors import CheckpointError, GraphError, wrong_type
from lazygnn.graph import Graph, without_warnings
from lazygnn.methods import Place, build_model, place_graph, read_config
from lazygnn.model import Model
from lazygnn.models import Standardized
from lazygnn.ops import choose_device
from lazygnn.run.folder import HISTORIES, Run
from lazygnn.run.inputs import ANOTHER, check_same_graph


def with_absolute_paths(config: Config) -> Config:
    """Makes the path or root of the data absolute, so that the run can be used from any working directory."""
    if _is_graph(Path(config.dataset)):
        return config.model_copy(update={"dataset": str(Path(config.dataset).absolute())})
    return config.model_copy(update={"root": str(data_root(config.root).absolute())})


def reload_graph(config: Config, root: str | None, trained_on: Graph | None = None) -> Graph:
    """Loads the graph of a run from its original path, or from `root`, which may have a file of the same name.

    Args:
        config: The configuration of the run.
        root: Another folder of data files.
        trained_on: The graph itself, if it is loaded already; it is not loaded again.
    """
    if trained_on is not None:
        if not isinstance(trained_on, Graph):
            raise GraphError(wrong_type("trained_on", trained_on, "give the graph itself that the run was trained on"))
        return trained_on
    path = Path(config.dataset)
    if path.is_absolute() or path.suffix == ".npz":
        candidates = [path] if root is None else [Path(root) / path.name, path]
    else:
        folder = data_root(config.root if root is None else root)
        candidates = [folder / f"{path}.npz", folder / path]
    folder = candidates[0].parent
    found = next((candidate for candidate in candidates if candidate.exists()), None)
    if found is None and config.dataset != EMBEDDED:
        raise GraphError(
            f"the run's graph `{config.dataset}` is not in `{folder}`; "
            "give the folder that has a file of that name with `--root`, or in Python the graph itself as `trained_on`"
        )
    # the embedded graph and the raw files of public data sets are loaded by name
    return load_graph(found if found is not None and _is_graph(found) else config.dataset, folder)


@dataclass(frozen=True)
class OpenedRun:
    """A run that is opened for inference.

    Attributes:
        run: The run.
        config: The configuration of training.
        weights: The best weights.
        graph: The graph of training, as it was loaded.
        device: The compute device.
    """

    run: Run
    config: Config
    weights: dict[str, Tensor]
    graph: Graph
    device: torch.device

    def restore(self, graph: Graph) -> tuple[Model, Graph]:
        """Returns the model with its weights, and a graph as the model takes it; see `restore_model`."""
        return restore_model(self.run, self.weights, graph, self.device)


def open_run(
    path: Path,
    device: str,
    root: str | None,
    *,
    trained_on: Graph | None = None,
    verify: bool,
    own: bool = True,
    instead: str = ANOTHER,
) -> OpenedRun:
    """Opens a run for inference; refuses a graph with other content than that of training.

    Args:
        path: The run folder.
        device: `auto`, `cpu` or `cuda`.
        root: Another folder of data files.
        trained_on: The graph of training, if it is loaded already.
        verify: Whether files of the run, or its graph, that have changed since they were written are refused.
        own: Whether it is the graph to predict on; beside another one, its content may have changed.
        instead: How to use another graph on purpose.
    """
    run = Run.open(path, verify=verify)
    config, weights, chosen = run.config(read_config), run.load_weights(), choose_device(device)
    with without_warnings():
        graph = reload_graph(config, root, trained_on)
    if own:
        check_same_graph(run, graph, instead)
    return OpenedRun(run, config, weights, graph, chosen)


def restore_model(
    run: Run, weights: dict[str, Tensor], graph: Graph, device: torch.device, *, scratch: Path | None = None
) -> tuple[Model, Graph]:
    """Builds the model of a run with its weights; returns it with the graph as the model takes it.

    The task of that graph has the threshold of the run.

    Args:
        run: The run.
        weights: Its weights.
        graph: The graph to predict on.
        device: The compute device.
        scratch: Where inference stores rows on disk; by default in the run folder.
    """
    config = run.config(read_config)
    graph = place_graph(config, graph, device, run.feature_scale())
    model = build_model(config, graph, Place(device, scratch or run.path / HISTORIES, training=False))
    # known by its weights: earlier runs learned targets as they are
    if {"target_center", "target_scale"} <= weights.keys():
        center, scale = (torch.empty_like(weights[name]) for name in ("target_center", "target_scale"))
        model = Standardized(model, center, scale).to(device)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"the weights in `{run.path}` do not fit its configuration: {reason}") from error
    return model, replace(graph, task=model.decide(graph.task))


def _is_graph(path: Path) -> bool:
    return path.suffix == ".npz" or (path / HEADER).is_file()
