"""Divides the nodes of a graph into parts: with METIS or KaMinPar, at random, or along the node order."""

from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph, check_graph
from lazygnn.ops import Adjacency
from lazygnn.partitioning.balancing import Balance, node_weights
from lazygnn.partitioning.base import Partition, equal_slices, fill_empty, from_parts, neighbor_blocks
from lazygnn.partitioning.cache import PartitionCache, default_cache
from lazygnn.partitioning.choice import OTHERWISE, choose_engine, engine_version, metis_bytes, require_engine
from lazygnn.partitioning.engines import Engine, metis_parts
from lazygnn.partitioning.process import EngineFailure, run_engine
from lazygnn.partitioning.summary import PartitionSummary, describe

__all__ = [
    "Balance",
    "Partition",
    "PartitionMethod",
    "PartitionSummary",
    "default_cache",
    "describe",
    "equal_slices",
    "partition",
]

PartitionMethod = Literal["auto", "metis", "kaminpar", "random", "contiguous"]
# with fewer entries METIS takes about a second, and a process of its own would take half of one to start
_ENTRIES_IN_PLACE = 1 << 20


def partition(
    graph: Graph,
    num_parts: int,
    *,
    method: PartitionMethod = "auto",
    seed: int = 0,
    balance: Balance = "nodes",
    cache: Path | None = None,
) -> Partition:
    """Divides the nodes of a graph into parts; the same seed gives the same parts.

    Args:
        graph: The graph; weights of edges are ignored.
        num_parts: Number of parts, from 1 to the number of nodes.
        method: `metis` and `kaminpar` keep neighbors together; METIS takes 120 bytes of memory per stored entry,
            KaMinPar about 20. `random` draws parts of equal size. `contiguous` slices the node order: into the parts
            of a prepared graph if their number is the same, and otherwise evenly. `auto` takes the parts of a prepared
            graph if their number is the same; otherwise it is `kaminpar` where METIS would not fit in the memory at
            hand and has no result in the cache, and `metis` elsewhere.
        seed: Seed of `metis`, `kaminpar` and `random`.
        balance: What `metis` and `kaminpar` give the parts about equal amounts of: `nodes`, training `labels`, or
            `edges`.
        cache: Folder that caches the results of METIS and KaMinPar, such as `default_cache()`.

    Examples:
        >>> from lazygnn import partition
        >>> from lazygnn.data.synthetic import block_graph
        >>> graph = block_graph(300, 3, degree=6, in_channels=8, num_classes=3)
        >>> parts = partition(graph, 3)
        >>> len(parts.order), len(parts.ptr)
        (300, 4)
    """
    check_graph(graph)
    if method not in get_args(PartitionMethod):
        raise ConfigError(f"`partition` is `{method}`; choose one of: {', '.join(get_args(PartitionMethod))}")
    if not 1 <= num_parts <= graph.num_nodes:
        raise ConfigError(
            f"`num_parts` is {num_parts}, but graph `{graph.name}` has {graph.num_nodes} nodes; "
            f"choose from 1 to {graph.num_nodes}"
        )
    weights = node_weights(graph, balance)
    if weights is not None and method in ("random", "contiguous"):
        raise ConfigError(f"`balance` is `{balance}`, but `partition` is `{method}`; choose `metis` or `kaminpar`")
    prepared = graph.part_ptr is not None and len(graph.part_ptr) == num_parts + 1
    if num_parts == 1 or method == "contiguous" or (method == "auto" and prepared and weights is None):
        return _slices(graph, num_parts)
    if method == "random":
        return from_parts(_random_parts(graph.num_nodes, num_parts, seed), num_parts, "random")
    return _with_engine(graph.adj, num_parts, None if method == "auto" else method, seed, weights, cache)


def _slices(graph: Graph, num_parts: int) -> Partition:
    order, ptr = torch.arange(graph.num_nodes), graph.part_ptr
    if ptr is None or len(ptr) != num_parts + 1:
        return Partition(order, equal_slices(graph.num_nodes, num_parts))
    return Partition(order, ptr, engine=graph.part_engine)


def _random_parts(num_nodes: int, num_parts: int, seed: int) -> Tensor:
    shuffled = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    return Partition(shuffled, equal_slices(num_nodes, num_parts)).part_of()


def _with_engine(
    adj: Adjacency, num_parts: int, engine: Engine | None, seed: int, weights: np.ndarray | None, cache: Path | None
) -> Partition:
    """Divides with an engine, or reads an earlier result; without an engine, the first that is there or fits."""
    stored = None if cache is None else PartitionCache(cache, adj, num_parts, seed, weights)
    if stored is not None and (found := stored.read(engine or "metis")) is not None:
        return found
    if engine is None:
        engine = choose_engine(len(adj.col))
        if stored is not None and engine != "metis" and (found := stored.read(engine)) is not None:
            return found
    require_engine(engine)
    part_of = torch.from_numpy(_engine_parts(engine, adj, num_parts, seed, weights, cache))
    found = from_parts(fill_empty(part_of, num_parts), num_parts, engine, engine_version(engine))
    if stored is not None:
        stored.write(found)
    return found


def _engine_parts(
    engine: Engine, adj: Adjacency, num_parts: int, seed: int, weights: np.ndarray | None, cache: Path | None
) -> np.ndarray:
    try:
        # a crash of KaMinPar would end this process
        if engine == "metis" and len(adj.col) <= _ENTRIES_IN_PLACE:
            return metis_parts(*_without_loops(adj), num_parts, seed, weights).astype(np.int64)
        return run_engine(engine, adj, num_parts, seed, weights, cache)
    except (EngineFailure, MemoryError, RuntimeError, OverflowError) as error:
        name = {"metis": "METIS", "kaminpar": "KaMinPar"}[engine]
        needs = f"; it needs about {metis_bytes(len(adj.col)) / 1e9:.1f} GB of memory" if engine == "metis" else ""
        other = ', choose `partition = "kaminpar"`,' if engine == "metis" else ","
        raise ConfigError(
            f"{name} could not divide the graph of {len(adj.col)} entries into {num_parts} parts ({error}){needs}: "
            f"free memory{other} or {OTHERWISE}"
        ) from error


def _without_loops(adj: Adjacency) -> tuple[np.ndarray, np.ndarray]:
    blocks = list(neighbor_blocks(adj))
    counts = np.concatenate([[0], *(count for _, count, _ in blocks)])
    return counts.cumsum(dtype=np.int64), np.concatenate([neighbors for _, _, neighbors in blocks])
