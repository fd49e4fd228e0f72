"""The measured graphs: random graphs of the shapes of public ones, drawn on the device in seconds.

Blocks are slices of the node order, with hubs at random positions. Every block has groups of one class each, so that
models can learn. Edges prefer their group, then their block.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from common.blocks import Blocks, distinct, normalized
from lazygnn.data import load_graph
from lazygnn.data.datasets import data_root
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.partitioning import default_cache, equal_slices, partition
from lazygnn.task import Task

# length of the class means; the noise in every feature has variance 1
_SIGNAL = 2.0


@dataclass(frozen=True)
class Shape:
    """Sizes of a graph, its partition, and the width and depth of the measured transform.

    Attributes:
        degree: Mean number of neighbors, without the node itself.
        mixing: Share of the edges that leave their block.
        skew: 1 for even degrees; above, a power-law tail of exponent `1 + skew / (skew - 1)`.
        recipe: Data set; its recipes have the published settings of other methods.
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
        Shape("reddit", 232_965, 99.645, 602, 41, 0.66, 200, 100, 256, 3, "reddit"),
        Shape("flickr", 89_250, 10.081, 500, 7, 0.5, 24, 12, 512, 3, "flickr"),
        Shape("yelp", 716_847, 19.467, 300, 100, 0.75, 40, 5, 512, 4, "yelp"),
        Shape("tiny", 2_000, 12.0, 16, 5, 0.6, 4, 1, 32, 2, "default"),
    )
}


def find_shape(name: str) -> Shape:
    """Returns the shape of that name."""
    if name not in SHAPES:
        raise ConfigError(f"unknown shape `{name}`; choose one of: {', '.join(SHAPES)}")
    return SHAPES[name]


def load(shape: Shape, device: torch.device, root: str | None = None) -> Graph:
    """Returns the graph of `<root>/<name>.npz`, partitioned by METIS, or a random graph if there is no such file.

    `part_ptr` has its parts. A graph from a file is in host memory.
    """
    file = data_root(root) / f"{shape.name}.npz"
    return read(file, shape) if file.is_file() else draw(shape, device)


def read(file: Path, shape: Shape) -> Graph:
    """Returns the graph of a file, in the order of its parts."""
    graph = load_graph(file)
    parts = partition(graph, shape.num_parts, cache=default_cache())
    return replace(graph.permute(parts.order), part_ptr=parts.ptr)


def draw(shape: Shape, device: torch.device, seed: int = 0) -> Graph:
    """Returns a random graph of a shape: symmetric, with self-loops, normalized as by `Graph.from_edges`."""
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
