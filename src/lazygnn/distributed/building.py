"""Builds the model and the trainer of a rank from a configuration."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from lazygnn.config import Config
from lazygnn.data.folder import map_folder, read_entries
from lazygnn.distributed.exchange import Exchange
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.loader import PartLoader
from lazygnn.distributed.shard import Shard, open_shard
from lazygnn.distributed.trainer import RankTrainer
from lazygnn.errors import ConfigError
from lazygnn.feature_scale import Choice, FeatureScale, are_badly_scaled, choose_scale
from lazygnn.graph import Graph
from lazygnn.methods import Place, build_model, find_method, place_graph
from lazygnn.methods.build import compute_dtype, method_options, scale_features, standardize_targets
from lazygnn.methods.options import ClusterOptions
from lazygnn.ops import Csr
from lazygnn.partitioning import equal_slices, partition

# methods that ranks can train
METHODS = ("lazygnn", "lazygnn-deep", "appnp-gas", "gcn-gas", "gcnii-gas", "mlp")

# rows of features that are looked at: so many pieces of so many rows, evenly spread
_PIECES, _PIECE = 64, 1024


def has_parts(method: str) -> bool:
    """Returns whether ranks train a method on parts of the graph; an `mlp` takes slices of its nodes."""
    return method in METHODS and issubclass(find_method(method).options, ClusterOptions)


def check_method(config: Config) -> None:
    """Refuses a method, or an option of it, that ranks cannot train."""
    if config.method not in METHODS:
        raise ConfigError(
            f"several ranks cannot train `{config.method}`; choose one of: {', '.join(METHODS)}, or start one process"
        )
    options = method_options(config)
    allowed = {
        "halo": ("frozen", "features", "none"),
        "loader": ("cluster",),
        "parts_per_batch": (1,),
        "history": ("device",),
        "exact": (False,),
    }
    for name, values in allowed.items():
        value = getattr(options, name, values[0])
        if value not in values:
            hint = "; parts are drawn together with `parts_per_step`" if name == "parts_per_batch" else ""
            raise ConfigError(
                f"`{name}` is {value}, which several ranks cannot train; set `{name}={str(values[0]).lower()}`, or "
                f"start one process{hint}"
            )


def share_of(config: Config, folder: Path, ranks: Ranks) -> Shard:
    """Reads the rows of this rank for the method of a configuration.

    Args:
        config: With `num_parts`, or `parts_per_step` for a method without parts.
        folder: A graph sorted by its partition, or one whose parts are slices of its node order.
        ranks: All ranks.
    """
    options, graph = method_options(config), map_folder(folder)
    if isinstance(options, ClusterOptions):
        # those of the folder, or else slices of the node order
        ptr = partition(graph, options.num_parts, method="contiguous").ptr
        return open_shard(folder, ranks, ptr=ptr)
    assert config.trainer.parts_per_step is not None
    ptr = equal_slices(graph.num_nodes, config.trainer.parts_per_step)
    return open_shard(folder, ranks, ptr=ptr, with_edges=False)


def build_trainer(
    config: Config,
    shard: Shard,
    ranks: Ranks,
    device: torch.device,
    scratch: Path,
    feature_scale: FeatureScale | None = None,
) -> RankTrainer:
    """Builds the trainer of this rank.

    Args:
        config: With `parts_per_step`.
        shard: The share of this rank.
        ranks: All ranks; each of them builds its trainer.
        device: The compute device.
        scratch: A folder of this rank for what inference stores.
        feature_scale: The scale of the features of the whole graph; `None` takes them as they are.
    """
    options, trainer = method_options(config), config.trainer
    options.check(device)
    assert trainer.parts_per_step is not None
    graph = place_graph(config, shard.graph, device, feature_scale)
    exchange = Exchange(
        ranks,
        graph.num_nodes,
        len(shard.halo),
        device,
        wire=getattr(torch, trainer.wire),
        traffic=shard.traffic,
    )
    place = Place(device, scratch, compute_dtype=compute_dtype(config), make_store=exchange.make_store)
    torch.manual_seed(config.seed)
    model = standardize_targets(config, build_model(config, graph, place), graph)
    halo, num_layers = "none", 0
    if isinstance(options, ClusterOptions):
        halo, num_layers = options.halo, getattr(options, "num_layers", 0)
    loader = PartLoader(
        shard,
        graph,
        ranks,
        num_layers,
        parts_per_step=trainer.parts_per_step,
        halo=halo,
        halo_features=_halo_features(config, shard, graph, feature_scale) if halo == "features" else None,
        seed=config.seed,
    )
    return RankTrainer(model, loader, graph, trainer, ranks, exchange, seed=config.seed)


def choose_folder_scale(folder: Path, choice: Choice, *, normalized: bool) -> FeatureScale | None:
    """Returns the scale of a graph's features if they are to be standardized.

    Where the graph decides, this looks at a sample of its rows first, so that a large graph is not read as a whole.

    Args:
        folder: The graph.
        choice: `auto`, `on` or `off`.
        normalized: Whether rows are scaled to sum to one.
    """
    graph = map_folder(folder)
    if choice == "auto" and isinstance(graph.x, torch.Tensor):
        size = min(_PIECE, graph.num_nodes)
        starts = torch.linspace(0, graph.num_nodes - size, _PIECES, dtype=torch.float64).long().unique().tolist()
        sample = np.concatenate([read_entries(folder, "x", start, start + size) for start in starts])
        if not are_badly_scaled(torch.from_numpy(sample)):
            return None
    return choose_scale(graph, choice, normalized=normalized)


def _halo_features(config: Config, shard: Shard, graph: Graph, scale: FeatureScale | None) -> torch.Tensor | Csr:
    """Returns the features around the parts, as the model takes them."""
    around = scale_features(config, replace(shard.graph, x=shard.halo_features()), scale)
    return around.x.to(graph.x.device)
