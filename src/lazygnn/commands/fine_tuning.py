"""Trains from the best weights of an earlier run, on its graph or another one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lazygnn.commands.paths import as_optional_path, as_path
from lazygnn.commands.restoring import reload_graph
from lazygnn.commands.training import train
from lazygnn.data import load_graph
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import derive, read_config
from lazygnn.run.folder import Run


def fine_tune(
    path: Path | str,
    values: Mapping[str, Any] = {},
    out: Path | str | None = None,
    *,
    method: str | None = None,
    dataset: str | None = None,
    seed: int = 0,
    device: str = "auto",
    root: str | None = None,
    trained_on: Graph | None = None,
    quiet: bool = False,
    verify: bool = True,
) -> dict[str, Any]:
    """Trains a new run from the best weights of an earlier one, with its options.

    Args:
        path: The folder of the earlier run.
        values: Options that differ from those of the earlier run.
        out: The new run folder; default: `runs/<dataset>-<method>-<seed>`, with a number if that exists.
        method: Another method with the same layers, such as `appnp` for `lazygnn`.
        dataset: Another graph with the same features and classes.
        seed: Seed of dropout and batches.
        device: `auto`, `cpu` or `cuda`.
        root: The folder of data files.
        trained_on: The graph of the earlier run, if it is loaded already; by default it is found by its name.
        quiet: Shows no progress.
        verify: Whether files of the earlier run that have changed since they were written are refused.
    """
    path, out = as_path(path, "path"), as_optional_path(out, "out")
    if dataset is not None and trained_on is not None:
        raise ConfigError("`dataset` is another graph, so that `trained_on` has no effect; omit one of them")
    earlier = Run.open(path, verify=verify).config(read_config)
    place: dict[str, Any] = {"seed": seed, "device": device}
    if dataset is not None:
        place |= {"dataset": dataset, "root": root}
    config = derive(earlier, values, method=method, **place)
    graph = reload_graph(earlier, root, trained_on) if dataset is None else load_graph(dataset, root)
    return train(config, out, graph=graph, init_from=path, quiet=quiet, verify=verify)
