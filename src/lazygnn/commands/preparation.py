"""Loads and partitions a data set ahead of training."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from lazygnn.commands.paths import as_optional_path
from lazygnn.data import load_graph
from lazygnn.data.sorted_folder import save_sorted
from lazygnn.partitioning import Balance, PartitionMethod, default_cache, describe, partition


def prepare(
    dataset: str,
    num_parts: int,
    method: PartitionMethod,
    num_layers: int,
    *,
    seed: int = 0,
    balance: Balance = "nodes",
    root: str | None = None,
    out: Path | str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Loads and partitions a data set, so that training finds the parts in the cache; returns their sizes and halos.

    Args:
        dataset: A name or a path.
        num_parts: The number of parts.
        method: `auto`, `metis`, `kaminpar`, `random` or `contiguous`.
        num_layers: The number of hops of the deep halo.
        seed: The seed of the partition.
        balance: What the parts have about equal amounts of: `nodes`, training `labels`, or `edges`.
        root: The folder of data files.
        out: Writes the permuted graph, too, as a folder that `load_graph` maps into memory; training on it with as many
            parts takes its parts. Nodes without ids get their positions before as ids.
        tell: Called with a description of every stage.
    """
    out = as_optional_path(out, "out")
    graph = load_graph(dataset, root)
    tell(f"partitioning {graph.num_nodes:,} nodes into {num_parts} parts")
    parts = partition(graph, num_parts, method=method, seed=seed, balance=balance, cache=default_cache())
    tell("measuring the halos")
    summary = asdict(describe(graph, parts, num_layers))
    if out is not None:
        tell(f"writing {out}")
        # predictions name a node without an id by its position, which sorting changes
        ids = np.arange(graph.num_nodes) if graph.node_ids is None else graph.node_ids
        save_sorted(replace(graph, node_ids=ids, part_ptr=parts.ptr, part_engine=parts.engine), parts.order, out)
    found_by = {"partition": parts.method, "partition_engine": parts.engine}
    return {"dataset": dataset, "nodes": graph.num_nodes, "edges": graph.num_edges} | found_by | summary


def describe_parts(found: dict[str, Any]) -> str:
    """Returns the result of `prepare` as a sentence with units."""
    engine = f" by {found['partition_engine']}" if found["partition_engine"] else ""
    return (
        f"{found['nodes']:,} nodes, {found['edges']:,} edges, in {found['num_parts']} parts{engine} of "
        f"{found['smallest_part']:,} to {found['largest_part']:,} nodes; {found['edge_cut']:.1%} of the edges are "
        f"between parts; halo nodes per node of a part: {found['mean_halo']:.2f} within 1 hop (at most "
        f"{found['max_halo']:.2f}), {found['mean_deep_halo']:.2f} within {found['num_layers']} hops"
    )
