"""Graphs from files and names."""

from lazygnn.data.datasets import load_graph

__all__ = ["load_graph"]
