"""The methods by name: what model, what loader, which options. Table 1 of the paper as code."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field

from lazygnn.batch import Loader
from lazygnn.config import Config, Options, TrainerOptions, check_options, read_toml, split_options
from lazygnn.data import ClusterLoader, FullLoader, partition
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import History, NoHistory, open_history
from lazygnn.models import MLP, Decoupled
from lazygnn.models.layers import Linear
from lazygnn.propagation import ExactPropagation, LazyPropagation, NoPropagation, Propagation
from lazygnn.warmstart import Drift, Mix, WarmStart


class MLPOptions(Options):
    """The transform every decoupled model shares."""

    hidden_channels: int = Field(64, ge=1, description="width of the MLP")
    mlp_layers: int = Field(2, ge=1, description="depth of the MLP")
    norm: Literal["batch", "layer", "none"] = Field("none", description="normalisation between the layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="share of hidden units dropped in training")
    input_dropout: float = Field(0.0, ge=0, lt=1, description="share of input entries dropped in training")
    prop_channels: int | None = Field(None, ge=1, description="width of what is propagated; empty means the outputs")
    normalize_features: bool = Field(False, description="scale the rows of the features to sum one")


class ClusterOptions(Options):
    """How a graph is cut into batches, and where what does not fit is kept."""

    num_parts: int = Field(1, ge=1, description="parts the graph is cut into; 1 means full batch")
    parts_per_batch: int = Field(1, ge=1, description="parts drawn together")
    partition: Literal["metis", "random", "contiguous"] = Field("metis", description="how the graph is cut")
    partition_seed: int = Field(0, ge=0, description="seed of the cut, the same for every seed of the run")
    halo: Literal["frozen", "paper", "none"] = Field("frozen", description="neighbours around a batch; see the docs")
    features: Literal["device", "host"] = Field("device", description="where features and edges stay between batches")
    keep_batches: bool = Field(True, description="keep the cuts of single parts in memory")


class APPNPOptions(MLPOptions):
    """Exact propagation."""

    alpha: float = Field(0.1, gt=0, le=1, description="weight of the transformed features in every step")
    num_layers: int = Field(10, ge=1, description="steps of a pass")


class LazyGNNOptions(APPNPOptions, ClusterOptions):
    """Lazy propagation; the defaults are ours."""

    num_layers: int = Field(2, ge=1, description="steps of a pass")
    start: Literal["drift", "mix"] = Field("drift", description="warm start; mix is the paper's")
    beta: float = Field(0.1, ge=0, le=1, description="weight of fresh features in the start value")
    gamma: float = Field(1.0, ge=0, le=1, description="weight of fresh gradients; 1 keeps no gradient history")
    history: Literal["device", "host", "disk"] = Field("device", description="where the histories are kept")
    history_dtype: Literal["float32", "bfloat16", "float16", "int8"] = Field(
        "float32", description="type they are kept in"
    )
    eval_layers: int | None = Field(None, ge=0, description="exact steps in inference; empty means the fixed point")
    eval_tolerance: float = Field(1e-4, gt=0, lt=1, description="relative error of that fixed point")


class PaperOptions(LazyGNNOptions):
    """Lazy propagation as the paper describes it."""

    start: Literal["drift", "mix"] = Field("mix", description="warm start")
    beta: float = Field(0.5, ge=0, le=1, description="weight of fresh features in the start value")
    gamma: float = Field(0.5, ge=0, le=1, description="weight of fresh gradients")
    halo: Literal["frozen", "paper", "none"] = Field("paper", description="neighbours around a batch")


@dataclass(frozen=True)
class Place:
    """Where a run lives: its device, a folder for what goes to disk, and whether histories are needed at all."""

    device: torch.device
    folder: Path | None = None
    training: bool = True


@dataclass(frozen=True)
class Built:
    """A model, the batches it learns from, and the graph as the model wants to see it."""

    model: Decoupled
    loader: Loader
    graph: Graph


@dataclass(frozen=True)
class Method:
    """One row of the table."""

    summary: str
    paper: str
    options: type[Options]
    propagation: Callable[[Any, Graph, int, Place], Propagation]


def _no_propagation(options: MLPOptions, graph: Graph, channels: int, place: Place) -> Propagation:  # noqa: ARG001
    return NoPropagation()


def _exact(options: APPNPOptions, graph: Graph, channels: int, place: Place) -> Propagation:  # noqa: ARG001
    return ExactPropagation(options.alpha, options.num_layers)


def _lazy(options: LazyGNNOptions, graph: Graph, channels: int, place: Place) -> Propagation:
    def history(name: str, weight: float) -> History:
        if not place.training:
            return NoHistory()
        start: WarmStart = Drift(weight) if options.start == "drift" else Mix(weight)
        return open_history(
            graph.num_nodes,
            channels,
            start,
            tier=options.history,
            dtype=getattr(torch, options.history_dtype),
            device=place.device,
            folder=place.folder,
            name=name,
        )

    return LazyPropagation(
        options.alpha,
        history("features", options.beta),
        NoHistory() if options.gamma == 1 else history("gradients", options.gamma),
        eval_layers=options.eval_layers,
        eval_tolerance=options.eval_tolerance,
    )


METHODS: dict[str, Method] = {
    "mlp": Method("a multi-layer perceptron that does not see the graph", "-", MLPOptions, _no_propagation),
    "appnp": Method(
        "MLP, then exact propagation in every pass",
        "Gasteiger et al., Predict then Propagate, ICLR 2019",
        APPNPOptions,
        _exact,
    ),
    "lazygnn": Method(
        "MLP, then lazy propagation from a drifting history; our default",
        "Xue et al., LazyGNN, ICML 2023, with the warm start of docs/paper.md",
        LazyGNNOptions,
        _lazy,
    ),
    "lazygnn-paper": Method(
        "MLP, then lazy propagation with the paper's momentum, forward and backward",
        "Xue et al., LazyGNN, ICML 2023",
        PaperOptions,
        _lazy,
    ),
}


def find_method(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise ConfigError(f"unknown method `{name}`; choose one of: {', '.join(METHODS)}")
    return METHODS[name]


def recipe(method: str, dataset: str) -> dict[str, Any]:
    """The published or tuned values for a method on a data set; the `default` table where there is none."""
    tables = _recipes(method)
    chosen: dict[str, Any] = tables.get(Path(dataset).stem, tables["default"])
    return chosen


def recipe_names(method: str) -> list[str]:
    """The data sets a method has a recipe for."""
    return [name for name in _recipes(method) if name != "default"]


def _recipes(method: str) -> dict[str, dict[str, Any]]:
    with resources.as_file(resources.files("lazygnn") / "recipes" / f"{method}.toml") as path:
        return read_toml(path)


def resolve(method: str, dataset: str, values: Mapping[str, Any], **run: Any) -> Config:
    """A complete configuration: defaults, then the recipe, then `values`; `run` holds seed, device and root."""
    options = find_method(method).options
    merged = recipe(method, dataset) | dict(values)
    dealt = split_options(merged, {"trainer": TrainerOptions, "model": options})
    dumped = {group: part.model_dump() for group, part in dealt.items()}
    return check_options(Config, {"method": method, "dataset": dataset, **dumped, **run})


def build(
    config: Config,
    graph: Graph,
    device: torch.device | str = "cpu",
    *,
    folder: Path | None = None,
    cache: Path | None = None,
) -> Built:
    """Makes model and loader of a configuration; weights are drawn from torch's global generator.

    Args:
        config: From `resolve`.
        graph: As loaded; it is permuted by its partition and moved here.
        device: The compute device.
        folder: For histories on disk.
        cache: Folder of partitions that earlier runs have worked out.
    """
    place = Place(torch.device(device), folder)
    options = method_options(config)
    num_layers = options.num_layers if isinstance(options, APPNPOptions) else 0
    if not isinstance(options, ClusterOptions) or options.num_parts == 1:
        graph = place_graph(config, graph, place.device)
        return Built(build_model(config, graph, place), FullLoader(graph, num_layers), graph)
    parts = partition(graph, options.num_parts, method=options.partition, seed=options.partition_seed, cache=cache)
    graph = place_graph(config, graph.permute(parts.order), place.device)
    loader = ClusterLoader(
        graph,
        parts.ptr,
        num_layers,
        parts_per_batch=options.parts_per_batch,
        halo=options.halo,
        seed=config.seed,
        device=place.device,
        keep=options.keep_batches,
    )
    return Built(build_model(config, graph, place), loader, graph)


def build_model(config: Config, graph: Graph, place: Place) -> Decoupled:
    """The model of a configuration, on its device."""
    options = method_options(config)
    channels = options.prop_channels or graph.task.num_outputs
    transform = MLP(
        graph.in_channels,
        options.hidden_channels,
        channels,
        mlp_layers=options.mlp_layers,
        norm=options.norm,
        dropout=options.dropout,
        input_dropout=options.input_dropout,
    )
    head = None if options.prop_channels is None else Linear(channels, graph.task.num_outputs)
    propagation = find_method(config.method).propagation(options, graph, channels, place)
    return Decoupled(transform, propagation, head).to(place.device)


def place_graph(config: Config, graph: Graph, device: torch.device) -> Graph:
    """The graph as a method wants to see it: features scaled, and on the device unless it is to stay in host memory."""
    options = method_options(config)
    graph = graph.row_normalized() if options.normalize_features else graph
    stays = isinstance(options, ClusterOptions) and options.features == "host"
    return graph if stays else graph.to(device)


def method_options(config: Config) -> MLPOptions:
    """The options of a configuration's method, typed."""
    options = check_options(find_method(config.method).options, config.model)
    assert isinstance(options, MLPOptions)
    return options
