"""Loaders: cut or sample a graph into the batches of an epoch."""

from lazygnn.loader.cluster import ClusterLoader
from lazygnn.loader.control import ControlLoader
from lazygnn.loader.frozen import FrozenNeighborLoader, FrozenSaintLoader
from lazygnn.loader.full import FullLoader
from lazygnn.loader.importance import ImportanceLoader
from lazygnn.loader.layerwise import FastGCNLoader, LadiesLoader
from lazygnn.loader.neighbor import NeighborLoader
from lazygnn.loader.pyg import from_pyg_batch
from lazygnn.loader.rows import RowLoader
from lazygnn.loader.saint import SaintLoader

__all__ = [
    "ClusterLoader",
    "ControlLoader",
    "FastGCNLoader",
    "FrozenNeighborLoader",
    "FrozenSaintLoader",
    "FullLoader",
    "ImportanceLoader",
    "LadiesLoader",
    "NeighborLoader",
    "RowLoader",
    "SaintLoader",
    "from_pyg_batch",
]
