"""Graphs from files and names, and the loaders that cut them into batches."""

from lazygnn.data.cluster import ClusterLoader
from lazygnn.data.datasets import load_graph
from lazygnn.data.full import FullLoader
from lazygnn.data.partition import partition

__all__ = ["ClusterLoader", "FullLoader", "load_graph", "partition"]
