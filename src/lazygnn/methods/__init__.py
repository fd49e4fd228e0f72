"""The methods by name: Table 1 of the paper as code. `resolve` makes a configuration, `build` what it describes."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from lazygnn.batch import Loader
from lazygnn.config import Config, TrainerOptions, check_options, nearest, read_toml, split_options
from lazygnn.errors import ConfigError, wrong_type
from lazygnn.graph import Graph, check_graph
from lazygnn.methods.base import ClusterOptions, Cut, HistoryOptions, Method, MethodOptions, Place
from lazygnn.methods.decoupled import APPNP, LAZYGNN, LAZYGNN_PAPER, MLP_ALONE
from lazygnn.methods.layered import APPNP_GAS, GCN_FULL, GCN_GAS, GCNII_FULL, GCNII_GAS
from lazygnn.methods.precomputed import LABEL_PROPAGATION, SGC_ROWS, SIGN_ROWS
from lazygnn.methods.sampled import CLUSTER_GCN, GRAPHSAGE
from lazygnn.model import Model
from lazygnn.models import MLP
from lazygnn.partitioning import partition
from lazygnn.transforms import row_normalize

__all__ = [
    "METHODS",
    "Built",
    "Method",
    "Place",
    "build",
    "build_model",
    "find_method",
    "method_options",
    "methods_with",
    "place_graph",
    "recipe",
    "recipe_for",
    "recipe_names",
    "resolve",
]

logger = logging.getLogger(__name__)

METHODS: dict[str, Method] = {
    "mlp": MLP_ALONE,
    "appnp": APPNP,
    "lazygnn": LAZYGNN,
    "lazygnn-paper": LAZYGNN_PAPER,
    "gcn": GCN_FULL,
    "gcnii": GCNII_FULL,
    "gcn-gas": GCN_GAS,
    "gcnii-gas": GCNII_GAS,
    "appnp-gas": APPNP_GAS,
    "graphsage": GRAPHSAGE,
    "cluster-gcn": CLUSTER_GCN,
    "sgc": SGC_ROWS,
    "sign": SIGN_ROWS,
    "label-propagation": LABEL_PROPAGATION,
}


@dataclass(frozen=True)
class Built:
    """A model, the batches it learns from, and the graph as the model wants to see it."""

    model: Model
    loader: Loader
    graph: Graph


def find_method(name: str) -> Method:
    """The method of that name."""
    if not isinstance(name, str) or name not in METHODS:
        raise ConfigError(f"unknown method `{name}`; {nearest(str(name), METHODS, alike=0.7)}")
    return METHODS[name]


def methods_with(option: str) -> list[str]:
    """The methods that have an option of that name; all of them where it is one of training."""
    return [
        name
        for name, method in METHODS.items()
        if option in TrainerOptions.model_fields or option in method.options.model_fields
    ]


def recipe(method: str, dataset: str) -> dict[str, Any]:
    """The published or tuned values for a method on a data set; the `default` table where there is none."""
    tables = _recipes(method)
    return tables[_table_for(dataset, tables)]


def recipe_for(method: str, dataset: str) -> str:
    """The name of that recipe: that of the data set, of a file its stem, or `default`."""
    return _table_for(dataset, _recipes(method))


def recipe_names(method: str) -> list[str]:
    """The data sets a method has a recipe for."""
    return [name for name in _recipes(method) if name != "default"]


def _table_for(dataset: str, tables: Iterable[str]) -> str:
    stem = Path(dataset).stem
    return stem if stem in tables else "default"


def _recipes(method: str) -> dict[str, dict[str, Any]]:
    find_method(method)
    with resources.as_file(resources.files("lazygnn") / "recipes" / f"{method}.toml") as path:
        return read_toml(path)


def resolve(method: str, dataset: str | Path, values: Mapping[str, Any] = {}, **run: Any) -> Config:
    """A complete configuration: defaults, then the recipe, then `values`; `run` holds seed, device and root."""
    options = find_method(method).options
    if not isinstance(dataset, str | Path):
        raise ConfigError(wrong_type("dataset", dataset, "give a name or a path, and the graph itself to `build`"))
    if not isinstance(values, Mapping):
        raise ConfigError(wrong_type("values", values, 'give options by name, such as `{"epochs": 100}`'))
    dataset = str(dataset)
    _check_owner(values, method)
    merged = recipe(method, dataset) | dict(values)
    dealt = split_options(merged, {"trainer": TrainerOptions, "model": options})
    # a recipe may say more than is needed, and a run of earlier days is used as it is
    for name, reason in dealt["model"].ignored().items():
        if name in values:
            raise ConfigError(reason)
    dumped = {group: part.model_dump() for group, part in dealt.items()}
    return check_options(Config, {"method": method, "dataset": dataset, **dumped, **run})


def _check_owner(names: Iterable[str], method: str) -> None:
    """Refuses options that other methods have; a name that none has is left to who knows what is near it."""
    for name in names:
        if (owners := methods_with(name)) and method not in owners:
            raise ConfigError(f"method `{method}` has no option `{name}`; these have it: {', '.join(owners)}")


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
    if not isinstance(config, Config):
        raise ConfigError(wrong_type("config", config, "make one with `resolve(method, dataset)`"))
    check_graph(graph)
    method, options = find_method(config.method), method_options(config)
    compute_dtype = torch.bfloat16 if config.trainer.precision == "bfloat16" else torch.float32
    place = Place(torch.device(device), folder, compute_dtype=compute_dtype)
    if isinstance(options, ClusterOptions) and (options.features, options.edges) == ("device", "host"):
        raise ConfigError(
            "`features` is device, `edges` host; edges cannot stay in host memory alone: set `features=host` too, "
            "or leave `edges` empty"
        )
    if isinstance(options, HistoryOptions) and options.history == "pinned" and place.device.type != "cuda":
        logger.warning(
            "`history` is pinned, which is for a GPU; on a CPU it is the same as `device`: set `history=device` to "
            "silence this"
        )
    ptr = torch.tensor([0, graph.num_nodes])
    if isinstance(options, ClusterOptions) and options.num_parts > 1:
        drawn, there = options.parts_per_batch, options.num_parts
        if drawn > there:
            raise ConfigError(f"`parts_per_batch` is {drawn}, `num_parts` {there}; draw no more parts than there are")
        parts = partition(graph, options.num_parts, method=options.partition, seed=options.partition_seed, cache=cache)
        graph, ptr = graph.permute(parts.order), parts.ptr
    graph = place_graph(config, graph, place.device)
    loader = method.loader(options, Cut(graph, ptr, config.seed), place)
    model = build_model(config, graph, place)
    if config.trainer.epochs > 0 and not list(model.parameters()):
        raise ConfigError(f"`{config.method}` has no weights to train; set `epochs=0`")
    return Built(model, loader, graph)


def build_model(config: Config, graph: Graph, place: Place) -> Model:
    """The model of a configuration, on its device."""
    model = find_method(config.method).model(method_options(config), graph, place).to(place.device)
    compiles = config.trainer.compile and place.training
    if compiles and place.device.type != "cuda":
        logger.warning("`compile` is for a GPU and is ignored on a CPU; set `compile=false` to silence this")
    elif compiles:
        for module in model.modules():
            if isinstance(module, MLP):
                # parts differ in size
                module.compile(dynamic=True)
    return model


def place_graph(config: Config, graph: Graph, device: torch.device) -> Graph:
    """The graph as a method wants to see it: features scaled, on the device unless it is to stay, then prepared."""
    options = method_options(config)
    graph = row_normalize(graph) if options.normalize_features else graph
    stays = isinstance(options, ClusterOptions) and options.features == "host"
    return find_method(config.method).prepare(options, graph if stays else graph.to(device))


def method_options(config: Config) -> MethodOptions:
    """The options of a configuration's method, typed."""
    return check_options(find_method(config.method).options, config.model)
