"""Configurations by name: a method, its recipe for a data set, and the values that a user sets."""

import logging
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from lazygnn import methods
from lazygnn.config import (
    Asked,
    Config,
    Options,
    TrainerOptions,
    nearest,
    read_toml,
    rename,
    split_options,
)
from lazygnn.errors import ConfigError, wrong_type
from lazygnn.graph import Graph, check_graph
from lazygnn.methods.base import Facts, Method, can_choose_threshold
from lazygnn.methods.plugins import load_plugin, loaded_plugins, plugin_packages, plugin_recipes
from lazygnn.methods.rule import batch_sizes, rule

logger = logging.getLogger(__name__)

# nodes, features and outputs of the data sets that recipes were made for; any number of features where it is None
_SIZES: dict[str, tuple[int, int | None, int]] = {
    "arxiv": (169_343, None, 40),
    "citeseer": (3_327, 3_703, 6),
    "cora": (2_708, 1_433, 7),
    "flickr": (89_250, 500, 7),
    "ogbn-arxiv": (169_343, 128, 40),
    "ogbn-products": (2_449_029, 100, 47),
    "pubmed": (19_717, 500, 3),
    "reddit": (232_965, 602, 41),
    "wordnet": (117_659, 128, 45),
    "wordnet-small": (117_659, 2_048, 45),
    "yelp": (716_847, 300, 100),
}


def find_method(name: str) -> Method[Any]:
    """Returns the method of that name; that of another package is imported here."""
    if isinstance(name, str) and name in methods.METHODS:
        return methods.METHODS[name]
    if isinstance(name, str) and (found := load_plugin(name)) is not None:
        return found
    known = [*methods.METHODS, *(each for each in plugin_packages() if each not in methods.METHODS)]
    raise ConfigError(f"unknown method `{name}`; {nearest(str(name), known, alike=0.7)}")


def methods_with(option: str) -> list[str]:
    """Returns the names of the methods that accept an option; all of them for an option of training.

    Methods of other packages count once they are loaded.
    """
    return [
        name
        for name, method in (loaded_plugins() | methods.METHODS).items()
        if option in TrainerOptions.model_fields or option in method.options.model_fields
    ]


def recipe(method: str, dataset: str, *, graph: Graph | None = None, values: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Returns the published or tuned values for a method on a data set.

    Without any, the values follow from the graph by `rule`. Without a graph they are those of the `default` table. A
    recipe is not taken for a graph of another size than its data set has: a file may have the same name by chance. The
    size of sampled batches follows from the graph in any case.
    """
    if graph is not None and follows_rule(method, dataset, graph):
        return rule(find_method(method), Facts.of(graph), values)
    name = recipe_for(method, dataset, graph=graph)
    table = _recipes(method)[name]
    if graph is None:
        return table
    # a method without weights has no rule, but may have a threshold; published recipes have none
    chosen = {"threshold": "validation"} if name == "default" and can_choose_threshold(graph) else {}
    return chosen | batch_sizes(graph.num_nodes, values) | table


def follows_rule(method: str, dataset: str, graph: Graph) -> bool:
    """Returns whether the values for a graph are those of `rule`: there is no recipe, and the method has a rule."""
    return recipe_for(method, dataset, graph=graph) == "default" and find_method(method).adapt is not None


def recipe_for(method: str, dataset: str, *, graph: Graph | None = None) -> str:
    """Returns the name of that recipe: the data set, the stem of a file, or `default`."""
    name = Path(dataset).stem
    if name not in _recipes(method):
        return "default"
    return name if graph is None or _has_size_of(name, graph) else "default"


def recipe_names(method: str) -> list[str]:
    """Returns the data sets that a method has a recipe for."""
    return [name for name in _recipes(method) if name != "default"]


def resolve(
    method: str,
    dataset: str | Path,
    values: Mapping[str, Any] = {},
    *,
    graph: Graph | None = None,
    use_recipe: bool = True,
    **run: Any,
) -> Config:
    """Returns a complete configuration.

    Args:
        method: A name in `METHODS`, or the method of another package.
        dataset: A name or a path.
        values: Options by name; they override the recipe, which overrides the defaults.
        graph: The graph to train on. If the method has no recipe for the data set, its defaults follow from the graph.
            Without a graph they are the same for all graphs, and `build` warns if other values suit its graph.
        use_recipe: Whether to take the recipe for the data set, if there is one.
        run: `seed`, `device` and `root`.

    Examples:
        >>> from lazygnn import resolve
        >>> config = resolve("lazygnn", "cora", {"epochs": 50}, seed=1)
        >>> config.trainer.epochs, config.seed
        (50, 1)
        >>> resolve("lazygnn", "cora", {"epoch": 50})
        Traceback (most recent call last):
            ...
        lazygnn.errors.ConfigError: unknown option `epoch`; did you mean `epochs`?
    """
    options = find_method(method).options
    if not isinstance(dataset, str | Path):
        raise ConfigError(wrong_type("dataset", dataset, "give a name or a path, and the graph itself to `build`"))
    if not isinstance(values, Mapping):
        raise ConfigError(wrong_type("values", values, 'give options by name, such as `{"epochs": 100}`'))
    if others := [name for name in run if name not in ("seed", "device", "root")]:
        raise ConfigError(
            f"`{others[0]}` is no argument of `resolve`; if it is an option, give it in `values`: "
            f'`{{"{others[0]}": {run[others[0]]!r:.40}}}`'
        )
    if graph is not None:
        check_graph(graph)
    dataset = str(dataset)
    _check_owner(values, method)
    if use_recipe and graph is not None and recipe_for(method, dataset) != recipe_for(method, dataset, graph=graph):
        _warn_of_name(dataset, graph)
    source = dataset if use_recipe else "default"
    chosen = recipe(method, source, graph=graph, values=values)
    chosen = published_values(dataset, graph) | chosen | dict(values)
    groups = split_options(chosen, {"trainer": TrainerOptions, "model": options})
    _check_effect(groups, values)
    config = Config(method=method, dataset=dataset, **groups, **run)
    return config if graph is not None else config.without_graph(Asked(source, dict(values)))


def unsuited(config: Config, graph: Graph) -> dict[str, Any]:
    """Returns the options that would have other values if `resolve` had been given the graph, with these values."""
    if config.asked is None:
        return {}
    name, values = config.asked
    now = config.trainer.model_dump() | config.model.model_dump()
    wanted = recipe(config.method, name, graph=graph, values=values)
    if published_values(config.dataset, None) and not published_values(config.dataset, graph):
        # the name is that of a known data set, the graph is not
        wanted = {"standardize_features": TrainerOptions.model_fields["standardize_features"].default} | wanted
    return {
        option: value
        for option, value in wanted.items()
        if option not in values and value != ("none" if now[option] is None else now[option])
    }


def published_values(dataset: str, graph: Graph | None) -> dict[str, Any]:
    """Returns what every method takes on a known data set: published scores are for the features as they are."""
    return {"standardize_features": "off"} if _is_known(dataset, graph) else {}


def derive(config: Config, values: Mapping[str, Any], *, method: str | None = None, **run: Any) -> Config:
    """Returns a configuration that differs from another in some values.

    Args:
        config: The other configuration.
        values: Options by name.
        method: Another method; options that it does not have are dropped.
        run: Other values of `dataset`, `seed`, `device` and `root`.
    """
    method = config.method if method is None else method
    groups: dict[str, type[Options]] = {"trainer": TrainerOptions, "model": find_method(method).options}
    _check_owner(values, method)
    # refuses unknown names and wrong values
    split_options(values, groups)
    kept = config.trainer.model_dump() | config.model.model_dump()
    known = {name for options in groups.values() for name in options.model_fields}
    merged = {name: "none" if value is None else value for name, value in kept.items() if name in known}
    typed = split_options(merged | dict(values), groups)
    _check_effect(typed, values)
    return Config(**{**dict(config), "method": method, **typed, **run})


def read_config(record: Mapping[str, Any]) -> Config:
    """Returns the configuration that `Config.record` wrote; options that were renamed since get their new names."""
    groups: dict[str, type[Options]] = {"trainer": TrainerOptions}
    if "method" in record:
        groups["model"] = find_method(record["method"]).options
    typed = {
        group: options(**rename(record[group]))
        for group, options in groups.items()
        if isinstance(record.get(group), Mapping)
    }
    return Config(**{**record, **typed})


def _check_effect(groups: Mapping[str, Options], values: Mapping[str, Any]) -> None:
    """Refuses options without effect that the user set: a recipe may set more than a run needs."""
    for options in groups.values():
        for name, reason in options.ignored().items():
            if name in values:
                raise ConfigError(reason)


def _check_owner(names: Iterable[str], method: str) -> None:
    """Refuses options of other methods; `split_options` reports names that no method has."""
    for name in names:
        if (owners := methods_with(name)) and method not in owners:
            raise ConfigError(f"method `{method}` has no option `{name}`; methods that accept it: {', '.join(owners)}")


def _warn_of_name(dataset: str, graph: Graph) -> None:
    name = Path(dataset).stem
    nodes, features, outputs = _SIZES[name]
    known = "" if features is None else f", {features:,} features"
    logger.warning(
        f"`{dataset}` has the name of the data set {name}, but {graph.num_nodes:,} nodes, {graph.in_channels:,} "
        f"features and {graph.task.num_outputs} outputs instead of {nodes:,} nodes{known} and {outputs} outputs; "
        "its recipe is not used"
    )


def _is_known(dataset: str, graph: Graph | None) -> bool:
    name = Path(dataset).stem
    return name in _SIZES and (graph is None or _has_size_of(name, graph))


def _has_size_of(name: str, graph: Graph) -> bool:
    if name not in _SIZES:
        return True
    nodes, features, outputs = _SIZES[name]
    found = (graph.num_nodes, graph.in_channels if features is not None else None, graph.task.num_outputs)
    return found == (nodes, features, outputs)


def _recipes(method: str) -> dict[str, dict[str, Any]]:
    find_method(method)
    if method not in methods.METHODS:
        return plugin_recipes(method)
    return {name: dict(values) for name, values in _own_recipes(method).items()}


@cache
def _own_recipes(method: str) -> dict[str, dict[str, Any]]:
    with resources.as_file(resources.files("lazygnn") / "recipes" / f"{method}.toml") as path:
        return read_toml(path)
