"""The configuration and the graph of a run as several ranks use them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lazygnn.commands.restoring import reload_graph
from lazygnn.config import Config
from lazygnn.data.datasets import find_graph
from lazygnn.data.sorted_folder import save_sorted
from lazygnn.distributed.building import check_method, has_parts
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import derive, recipe, resolve
from lazygnn.methods.build import method_options
from lazygnn.methods.options import ClusterOptions
from lazygnn.partitioning import default_cache
from lazygnn.run.folder import Run
from lazygnn.run.inputs import check_same_graph

# in a run folder: the graph sorted by its partition, and for each of its nodes the position in the graph as loaded
PARTS, ORDER = "parts", "order.npy"


def resolve_for_ranks(
    method: str, dataset: str, values: Mapping[str, Any], graph: Graph, num_ranks: int, **run: Any
) -> Config:
    """Returns the configuration that ranks train; defaults that depend on batches follow from the parts of a step.

    The nodes of a part are not a sample of the graph, so batch norm over one part misleads. Where the user sets no
    norm, layer norm takes its place.

    Args:
        method: The name of a method.
        dataset: A name or a path.
        values: Options that the user sets, already checked.
        graph: The graph as loaded; the parts of a prepared one are taken.
        num_ranks: The number of ranks at the start.
        run: `seed`, `device` and `root`.

    Raises:
        ConfigError: The method, or an option, is not for ranks, or there are more ranks than parts.
    """
    # as checked, since an assignment of `none` means that it is not set
    together = check_values(method, dataset, values, **run).trainer.parts_per_step or num_ranks
    given = dict(values)
    if has_parts(method):
        usual = recipe(method, dataset, graph=graph, values=values).get("num_parts", 1)
        num_parts = _num_parts(values.get("num_parts", usual), graph, together)
        if num_parts > 1:
            given |= {"num_parts": num_parts, "parts_per_step": min(together, num_parts)}
    config = resolve(method, dataset, given, graph=graph, **run)
    if "norm" not in values and config.model.model_dump().get("norm") == "batch":
        config = derive(config, {"norm": "layer"})
    return for_ranks(config, graph, num_ranks)


def check_values(method: str, dataset: str, values: Mapping[str, Any], **run: Any) -> Config:
    """Returns a configuration for ranks from options alone, to refuse wrong ones before the graph is loaded."""
    # ranks always have parts, so an option that needs some has an effect
    parts = {"num_parts": 2} if has_parts(method) else {}
    return resolve(method, dataset, parts | dict(values), **run)


def for_ranks(config: Config, graph: Graph, num_ranks: int) -> Config:
    """Returns a configuration with the number of parts, and of parts in a step, that ranks train.

    Args:
        config: As the user gave it.
        graph: The graph as loaded; the parts of a prepared one are taken.
        num_ranks: The number of ranks at the start.

    Raises:
        ConfigError: The method, or an option, is not for ranks, or there are more ranks than parts.
    """
    check_method(config)
    if config.trainer.logger != "none":
        raise ConfigError(f"`logger` is {config.trainer.logger}, which several ranks do not write; omit it")
    together = config.trainer.parts_per_step or num_ranks
    num_parts = together
    model = config.model
    if isinstance(model, ClusterOptions):
        num_parts = _num_parts(model.num_parts, graph, together)
        update: dict[str, Any] = {"num_parts": num_parts}
        if num_parts == _prepared(graph):
            update["partition"] = "contiguous"
        model = model.model_copy(update=update)
    if num_ranks > num_parts:
        raise ConfigError(
            f"{num_ranks} ranks share {num_parts} parts, and a rank needs one at least; set `num_parts={num_ranks}` or "
            "more, or start fewer ranks"
        )
    if num_parts < 2 and isinstance(model, ClusterOptions):
        raise ConfigError("`parts_per_step` needs a graph of several parts; set `num_parts`, or omit `parts_per_step`")
    trainer = config.trainer.model_copy(update={"parts_per_step": min(together, num_parts)})
    return config.model_copy(update={"trainer": trainer, "model": model})


def _num_parts(chosen: int, graph: Graph, together: int) -> int:
    """Returns the number of parts: as chosen, those of a prepared graph, or one for each of a step."""
    return chosen if chosen > 1 else _prepared(graph) or together


def _prepared(graph: Graph) -> int:
    """Returns the number of parts that a graph was prepared with, or 0."""
    return 0 if graph.part_ptr is None else len(graph.part_ptr) - 1


def parts_folder(run: Run, config: Config, root: str | None = None) -> Path:
    """Returns the folder of a run's graph, sorted by its partition; writes it to the run folder if it is not there.

    Args:
        run: The run.
        config: Its configuration, from `for_ranks`.
        root: Another folder of data files.
    """
    given = find_graph(config.dataset, root or config.root)
    # slices of the node order need no other order
    is_sorted = not isinstance(config.model, ClusterOptions) or config.model.partition == "contiguous"
    if given is not None and given.is_dir() and is_sorted:
        return given.absolute()
    made = run.path / PARTS
    if not made.is_dir():
        graph = reload_graph(config, root)
        check_same_graph(run, graph, "start a new run")
        parts = method_options(config).find_parts(graph, default_cache())
        order = torch.arange(graph.num_nodes) if parts is None else parts.order
        np.save(run.path / ORDER, order.numpy())
        ptr = None if parts is None else parts.ptr
        engine = graph.part_engine if is_sorted else None
        save_sorted(replace(graph, part_ptr=ptr, part_engine=engine), order, made)
    return made.absolute()
