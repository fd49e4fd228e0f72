"""Graphs from files and names, and the loaders that cut them into batches."""

from lazygnn.data.datasets import load_graph
from lazygnn.data.full import FullLoader

__all__ = ["FullLoader", "load_graph"]
