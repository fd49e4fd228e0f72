"""Loaders: the batches of an epoch, cut or sampled from a graph."""

from lazygnn.loader.cluster import ClusterLoader
from lazygnn.loader.full import FullLoader
from lazygnn.loader.neighbor import NeighborLoader
from lazygnn.loader.pyg import from_pyg_batch
from lazygnn.loader.rows import RowLoader

__all__ = ["ClusterLoader", "FullLoader", "NeighborLoader", "RowLoader", "from_pyg_batch"]
