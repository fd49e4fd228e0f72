"""The configuration and the graph of a run as several ranks use them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from lazygnn.commands.restoring import reload_graph
from lazygnn.config import Config
from lazygnn.data.datasets import find_graph
from lazygnn.data.folder import save_folder
from lazygnn.distributed.building import METHODS, check_method
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods.build import method_options
from lazygnn.methods.options import ClusterOptions
from lazygnn.partitioning import default_cache
from lazygnn.run.folder import Run

# in a run folder: the graph sorted by its partition, and for each of its nodes the position in the graph as loaded
PARTS, ORDER = "parts", "order.npy"


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
    if METHODS[config.method]:
        options = method_options(config)
        assert isinstance(options, ClusterOptions)
        chosen = options.num_parts
        prepared = 0 if graph.part_ptr is None else len(graph.part_ptr) - 1
        num_parts = chosen if chosen > 1 else prepared or together
        update: dict[str, Any] = {"num_parts": num_parts}
        if num_parts == prepared:
            update["partition"] = "contiguous"
        model = model.model_copy(update=update)
    if num_ranks > num_parts:
        raise ConfigError(
            f"{num_ranks} ranks share {num_parts} parts, and a rank needs one at least; set `num_parts={num_ranks}` or "
            "more, or start fewer ranks"
        )
    if num_parts < 2 and METHODS[config.method]:
        raise ConfigError("`parts_per_step` needs a graph of several parts; set `num_parts`, or omit `parts_per_step`")
    trainer = config.trainer.model_copy(update={"parts_per_step": min(together, num_parts)})
    return config.model_copy(update={"trainer": trainer, "model": model})


def parts_folder(run: Run, config: Config, root: str | None = None) -> Path:
    """Returns the folder of a run's graph, sorted by its partition; writes it to the run folder if it is not there.

    Args:
        run: The run.
        config: Its configuration, from `for_ranks`.
        root: Another folder of data files.
    """
    given = find_graph(config.dataset, root or config.root)
    # slices of the node order need no other order
    is_sorted = getattr(config.model, "partition", "contiguous") == "contiguous"
    if given is not None and given.is_dir() and is_sorted:
        return given.absolute()
    made = run.path / PARTS
    if not made.is_dir():
        graph = reload_graph(config, root)
        parts = method_options(config).find_parts(graph, default_cache())
        order = torch.arange(graph.num_nodes) if parts is None else parts.order
        np.save(run.path / ORDER, order.numpy())
        ptr = None if parts is None else parts.ptr
        sorted_graph = graph.permute(order)
        save_folder(Graph(**{**vars(sorted_graph), "part_ptr": ptr}), made)
    return made.absolute()
