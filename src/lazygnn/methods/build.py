"""Builds the model of a configuration, its loader, and the graph as the model takes it."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lazygnn.batch import Loader
from lazygnn.config import Config
from lazygnn.errors import ConfigError, wrong_type
from lazygnn.feature_scale import FeatureScale, choose_scale
from lazygnn.graph import Graph, check_graph
from lazygnn.methods.base import Cut, MethodOptions, Place
from lazygnn.methods.memory import within_memory
from lazygnn.methods.recipes import find_method, unsuited
from lazygnn.model import Model
from lazygnn.models import MLP, Standardized
from lazygnn.ops import choose_device
from lazygnn.partitioning import Partition
from lazygnn.transforms import row_normalize

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Built:
    """A model, the loader of its training batches, and the graph as the model takes it.

    Attributes:
        model: The model.
        loader: The loader of its training batches.
        graph: The graph as the model takes it; features may be scaled.
        feature_scale: The scale of the features; `None` if they are as they were.
        parts: The parts that it is sorted by, of the graph as it was loaded; `None` if it has the order of that graph.
        config: What it was built from.
    """

    model: Model
    loader: Loader
    graph: Graph
    feature_scale: FeatureScale | None = None
    parts: Partition | None = None
    config: Config | None = None

    def prepare(self, graph: Graph) -> Graph:
        """Returns a graph as the model takes it, for `infer`, `evaluate` and reports; nodes keep their order.

        Features are scaled as in training, and of several labels those above the threshold of the model are predicted.

        Args:
            graph: The one that it was built with, as it was loaded, or another with the same features and classes.

        Examples:
            >>> from lazygnn import build, infer, resolve
            >>> from lazygnn.data.synthetic import block_graph
            >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
            >>> built = build(resolve("gcn", "mine", graph=graph), graph)
            >>> infer(built.model, built.prepare(graph)).shape
            torch.Size([300, 3])
        """
        check_graph(graph)
        assert self.config is not None
        placed = place_graph(self.config, graph, self.graph.device, self.feature_scale)
        return replace(placed, task=self.model.decide(placed.task))


def build(
    config: Config,
    graph: Graph,
    device: torch.device | str | None = None,
    *,
    folder: Path | str | None = None,
    cache: Path | str | None = None,
    feature_scale: FeatureScale | None = None,
) -> Built:
    """Builds the model and the loader of a configuration.

    Torch's global generator initializes the weights: call `torch.manual_seed(config.seed)` before, as `train` does.

    Args:
        config: From `resolve`.
        graph: As loaded; it is permuted by its partition and moved here.
        device: The compute device; `auto` is a GPU if there is one. Default: that of `config` if it names one, or else
            the CPU.
        folder: For histories on disk.
        cache: Folder of partitions, read and written.
        feature_scale: That of an earlier graph; by default `standardize_features` decides.

    Examples:
        >>> from lazygnn import build, resolve
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> built = build(resolve("gcn", "mine", {"num_layers": 2}, graph=graph), graph)
        >>> type(built.model).__name__, len(built.loader)
        ('GCN', 1)
    """
    if not isinstance(config, Config):
        raise ConfigError(wrong_type("config", config, "make one with `resolve(method, dataset)`"))
    check_graph(graph)
    warn_of_unsuited(config, graph)
    method, options = find_method(config.method), method_options(config)
    histories, partitions = (None if path is None else Path(path) for path in (folder, cache))
    if device is None:
        device = "cpu" if config.device == "auto" else config.device
    place = Place(choose_device(device), histories, compute_dtype=compute_dtype(config))
    options.check(place.device)
    if feature_scale is None:
        choice = config.trainer.standardize_features
        feature_scale = choose_scale(graph, choice, normalized=options.normalize_features)
    parts = options.find_parts(graph, partitions)
    graph = graph if parts is None else graph.permute(parts.order)
    ptr = torch.tensor([0, graph.num_nodes]) if parts is None else parts.ptr
    graph = place_graph(config, graph, place.device, feature_scale)
    with within_memory(options):
        loader = method.loader(options, Cut(graph, ptr, config.seed), place)
    model = build_model(config, graph, place)
    if config.trainer.epochs > 0 and not list(model.parameters()):
        raise ConfigError(f"`{config.method}` has no weights to train; set `epochs=0`")
    model = standardize_targets(config, model, graph)
    method.link(model, loader)
    return Built(model, loader, graph, feature_scale, parts, config)


def warn_of_unsuited(config: Config, graph: Graph) -> None:
    """Warns of a configuration that `resolve` made without the graph, where the graph has other defaults."""
    if found := unsuited(config, graph):
        named = ", ".join(f"`{name}={value}`" for name, value in sorted(found.items()))
        logger.warning(
            f"`resolve` was called without the graph; with it, `{config.method}` has other defaults for "
            f"`{graph.name}`: {named}; pass `graph=graph` to `resolve`"
        )


def build_model(config: Config, graph: Graph, place: Place) -> Model:
    """Builds the model of a configuration on its device."""
    options = method_options(config)
    with within_memory(options):
        model = find_method(config.method).model(options, graph, place)
    model = model.to(place.device)
    compiles = config.trainer.compile and place.training
    if compiles and place.device.type != "cuda":
        logger.warning("`compile` is for a GPU and is ignored on a CPU; set `compile=false` to silence this warning")
    elif compiles:
        for module in model.modules():
            if isinstance(module, MLP):
                # parts differ in size
                module.compile(dynamic=True)
    return model


def standardize_targets(config: Config, model: Model, graph: Graph) -> Model:
    """Returns the model that is trained: for a regression, one that learns standardized targets unless that is off."""
    wanted = config.trainer.standardize_targets and graph.task.kind == "regression"
    return Standardized.fit(model, graph).to(model.device) if wanted and list(model.parameters()) else model


def place_graph(config: Config, graph: Graph, device: torch.device, feature_scale: FeatureScale | None = None) -> Graph:
    """Returns the graph as a method takes it: features scaled, moved unless kept on the host, then prepared."""
    options = method_options(config)
    graph = scale_features(config, graph, feature_scale)
    graph = graph if options.keeps_features_on_host else graph.to(device)
    return find_method(config.method).prepare(options, graph)


def scale_features(config: Config, graph: Graph, feature_scale: FeatureScale | None) -> Graph:
    """Returns the graph with its features as a method takes them: standardized, or with rows that sum to one."""
    graph = graph if feature_scale is None else feature_scale.apply(graph)
    return row_normalize(graph) if method_options(config).normalize_features else graph


def compute_dtype(config: Config) -> torch.dtype:
    """Returns the number format of the propagated values in training."""
    return torch.bfloat16 if config.trainer.precision == "bfloat16" else torch.float32


def method_options(config: Config) -> MethodOptions:
    """Returns the options of a configuration's method, with empty ones filled in."""
    options = config.model.resolved()
    assert isinstance(options, MethodOptions)
    return options
