"""The graphs that are measured: shapes of public ones, drawn on the device itself in seconds.

Blocks are slices of the node order, hubs lie anywhere within them, and every block holds groups of one class each, so
that there is something to learn. Edges prefer their group, then their block.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.blocks import Blocks, distinct, normalized
from lazygnn.data import load_graph
from lazygnn.data.datasets import data_root
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.partitioning import default_cache, equal_slices, partition
from lazygnn.task import Task

# length of the class means, against normal noise of variance 1 in every feature
_SIGNAL = 2.0


@dataclass(frozen=True)
class Shape:
    """Sizes of a graph, how it is cut, and the width and depth of the transform that is measured on it.

    Attributes:
        degree: Mean number of neighbours, the node itself not counted.
        mixing: Share of the edges that leave their block.
        skew: 1 for even degrees; above, a power-law tail of exponent `1 + skew / (skew - 1)`.
        recipe: Data set whose recipe holds the published settings of other methods.
    """

    name: str
    num_nodes: int
    degree: float
    in_channels: int
    num_classes: int
    train_share: float
    num_parts: int
    parts_per_batch: int
    hidden_channels: int
    mlp_layers: int
    recipe: str
    mixing: float = 0.13
    skew: float = 2.0


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("products", 2_449_029, 50.517, 100, 47, 0.08, 50, 1, 512, 4, "ogbn-products"),
        Shape("arxiv", 169_343, 13.674, 128, 40, 0.54, 60, 6, 256, 3, "arxiv"),
        Shape("tiny", 2_000, 12.0, 16, 5, 0.6, 4, 1, 32, 2, "default"),
    )
}


def find_shape(name: str) -> Shape:
    """The shape of that name."""
    if name not in SHAPES:
        raise ConfigError(f"unknown shape `{name}`; choose one of: {', '.join(SHAPES)}")
    return SHAPES[name]


def load(shape: Shape, device: torch.device, root: str | None = None) -> Graph:
    """`<root>/<name>.npz` cut by METIS where there is such a file, or else a drawn graph; `part_ptr` holds its parts.

    A graph that was read lies in host memory.
    """
    file = data_root(root) / f"{shape.name}.npz"
    return read(file, shape) if file.is_file() else draw(shape, device)


def read(file: Path, shape: Shape) -> Graph:
    """The graph of a file in the order of its parts."""
    graph = load_graph(file)
    parts = partition(graph, shape.num_parts, cache=default_cache())
    return replace(graph.permute(parts.order), part_ptr=parts.ptr)


def draw(shape: Shape, device: torch.device, seed: int = 0) -> Graph:
    """A random graph of a shape: symmetric, with self-loops, normalised as `Graph.from_edges` does it."""
    generator = torch.Generator(device).manual_seed(seed)
    blocks = Blocks(equal_slices(shape.num_nodes, shape.num_parts).to(device), shape.skew, generator)
    total = round(shape.num_nodes * shape.degree / 2)
    leaving = round(total * shape.mixing) if shape.num_parts > 1 else 0
    key = distinct(total - leaving, blocks.inside)
    if leaving > 0:
        key = torch.cat((key, distinct(leaving, blocks.across)))
    adj, degree = normalized(key, shape.num_nodes)
    y = blocks.labels(shape.num_classes)
    means = torch.randn(shape.num_classes, shape.in_channels, generator=generator, device=device)
    means *= _SIGNAL / means.norm(dim=1, keepdim=True)
    x = torch.randn(shape.num_nodes, shape.in_channels, generator=generator, device=device).add_(means[y])
    luck = torch.rand(shape.num_nodes, generator=generator, device=device)
    val = shape.train_share + (1 - shape.train_share) / 2
    masks = {"train": luck < shape.train_share, "val": (luck >= shape.train_share) & (luck < val), "test": luck >= val}
    task = Task("single-label", shape.num_classes)
    return Graph(x, y, adj, degree, task, masks, name=shape.name, part_ptr=blocks.ptr.cpu())
