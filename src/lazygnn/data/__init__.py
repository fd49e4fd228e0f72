"""Graphs from files and names, and the loaders that cut them into batches."""

from lazygnn.data.adapter import from_pyg_batch
from lazygnn.data.cluster import ClusterLoader
from lazygnn.data.datasets import load_graph
from lazygnn.data.full import FullLoader
from lazygnn.data.neighbor import NeighborLoader
from lazygnn.data.partition import partition
from lazygnn.data.rows import RowLoader

__all__ = [
    "ClusterLoader",
    "FullLoader",
    "NeighborLoader",
    "RowLoader",
    "from_pyg_batch",
    "load_graph",
    "partition",
]
