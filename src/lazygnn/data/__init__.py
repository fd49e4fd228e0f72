"""Readers: load a graph by path or by name."""

from lazygnn.data.datasets import load_graph

__all__ = ["load_graph"]
