"""Draws block-model graphs of any size, for tests, examples and benchmarks.

Every block consists of several groups of nodes, and every group has a class. Edges prefer their group, then their
block. Features are noisy, so a model needs the neighbors to predict the class. Each pair of blocks has its own random
numbers, so a graph larger than memory can be made block by block.

`N` nodes, `S` nodes of a block, `B` blocks, `G` groups of a block, `D` input features, `C` classes.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from lazygnn.data.folder import ArrayWriter, staged_folder
from lazygnn.data.folder_header import Header, mask_name, write_header
from lazygnn.graph import SPLITS, Graph
from lazygnn.ops import Adjacency, index_dtype
from lazygnn.partitioning import equal_slices
from lazygnn.task import Task

_SHARES = (0.6, 0.2, 0.2)
_COHESION = 0.7
_LABEL_NOISE = 0.1
_MAX_GROUPS = 8
# a block that is almost complete may lack a few edges
_MAX_DRAWS = 32
# the first word of a seed, so that every quantity has its own random numbers
_COUNTS, _ORDER, _EDGES, _CLASSES, _LABELS, _MEANS, _FEATURES, _SPLIT = range(8)


def block_graph(
    num_nodes: int,
    num_blocks: int,
    *,
    degree: float,
    in_channels: int,
    num_classes: int,
    mixing: float = 0.13,
    skew: float = 1.0,
    signal: float = 1.0,
    seed: int = 0,
    name: str = "block",
) -> Graph:
    """Draws a graph of equal blocks in node order; `partition(..., method="contiguous")` recovers the blocks.

    Args:
        num_nodes: Number of nodes: 60 % for training, 20 % each for validation and test.
        num_blocks: Number of blocks.
        degree: Mean number of neighbors, without the node itself.
        in_channels: Number of features.
        num_classes: Number of classes.
        mixing: Share of the edges between blocks, if there is more than one block.
        skew: 1 draws the ends of edges uniformly. Above 1, degrees have a power-law tail of exponent
            `1 + skew / (skew - 1)`, such as 3 for 2.
        signal: Norm of the class means; every feature has normal noise of variance 1.
        seed: The same seed gives the same graph.
        name: Name of the graph.
    """
    model = _BlockModel(num_nodes, num_blocks, degree, in_channels, num_classes, mixing, skew, signal, seed)
    blocks = range(num_blocks)
    rows = [model.rows(block) for block in blocks]
    degrees = np.concatenate([count for count, _ in rows])
    values = [_values(degrees, model.slice(block), cols) for block, (_, cols) in enumerate(rows)]
    rowptr, col = _rowptr(degrees, model.index), np.concatenate([cols for _, cols in rows])
    value = np.concatenate(values)
    return Graph(
        x=torch.from_numpy(np.concatenate([model.features(block) for block in blocks])),
        y=torch.from_numpy(model.labels),
        adj=Adjacency(torch.from_numpy(rowptr), torch.from_numpy(col), torch.from_numpy(value), num_nodes),
        degree=torch.from_numpy(degrees.astype(np.float32)),
        task=Task("single-label", num_classes),
        masks={split: torch.from_numpy(mask) for split, mask in model.masks().items()},
        name=name,
    )


def write_block_folder(
    path: str | Path,
    num_nodes: int = 2_449_029,
    num_blocks: int = 50,
    *,
    degree: float = 50.517,
    in_channels: int = 100,
    num_classes: int = 47,
    mixing: float = 0.13,
    skew: float = 2.0,
    signal: float = 1.0,
    seed: int = 0,
    name: str = "block",
) -> None:
    """Writes the graph of `block_graph` as a folder, one block at a time.

    The default sizes are those of ogbn-products: 61.9 million edges, 2.0 GB on disk.

    Args:
        path: The folder; `load_graph` opens it.
        num_nodes: Number of nodes; this and the other options are those of `block_graph`.
        num_blocks: Number of blocks; more blocks need less memory.
        degree: Mean number of neighbors.
        in_channels: Number of features.
        num_classes: Number of classes.
        mixing: Share of the edges between blocks.
        skew: 1 for uniform degrees, above for a heavy tail.
        signal: Norm of the class means.
        seed: The same seed gives the same graph.
        name: Name of the graph.
    """
    model = _BlockModel(num_nodes, num_blocks, degree, in_channels, num_classes, mixing, skew, signal, seed)
    with staged_folder(Path(path)) as folder:
        degrees = _write_adjacency(folder, model)
        with ArrayWriter(folder / "x.npy", np.dtype(np.float32), in_channels) as file:
            for block in range(num_blocks):
                file.append(model.features(block))
        masks = model.masks()
        np.save(folder / "degree.npy", degrees.astype(np.float32))
        np.save(folder / "y.npy", model.labels)
        for split, mask in masks.items():
            np.save(folder / f"{split}_mask.npy", mask)
        header = Header(
            name=name,
            task="single-label",
            num_nodes=num_nodes,
            in_channels=in_channels,
            num_outputs=num_classes,
            arrays=("rowptr", "col", "value", "degree", "x", "y", *map(mask_name, masks)),
        )
        write_header(folder, header)


def _write_adjacency(folder: Path, model: "_BlockModel") -> np.ndarray:
    """Writes columns, then values, which need the degrees of all nodes; returns the degrees."""
    degrees = np.empty(model.num_nodes, dtype=np.int64)
    with ArrayWriter(folder / "col.npy", model.index) as file:
        for block in range(model.num_blocks):
            degrees[model.slice(block)], cols = model.rows(block)
            file.append(cols)
    rowptr = _rowptr(degrees, model.index)
    np.save(folder / "rowptr.npy", rowptr)
    written = np.load(folder / "col.npy", mmap_mode="r", allow_pickle=False)
    with ArrayWriter(folder / "value.npy", np.dtype(np.float32)) as file:
        for block in range(model.num_blocks):
            rows = model.slice(block)
            file.append(_values(degrees, rows, written[rowptr[rows.start] : rowptr[rows.stop]]))
    return degrees


@dataclass(frozen=True)
class _BlockModel:
    """Draws a graph block by block; a block depends on the seed and its index, not on the order of the draws.

    Edges join ranks of a block. Low ranks have many edges if degrees are skewed, and the group of a rank is its
    remainder. `nodes` maps ranks to nodes in random order.
    """

    num_nodes: int
    num_blocks: int
    degree: float
    in_channels: int
    num_classes: int
    mixing: float
    skew: float
    signal: float
    seed: int

    def __post_init__(self) -> None:
        if not 1 <= self.num_blocks <= self.num_nodes:
            raise ValueError(f"`num_blocks` must be in [1, {self.num_nodes}], got {self.num_blocks}")
        if not 0 <= self.mixing <= 1:
            raise ValueError(f"`mixing` must be in [0, 1], got {self.mixing}")
        for field, least in (("degree", 0), ("in_channels", 1), ("num_classes", 1), ("skew", 1), ("seed", 0)):
            if not getattr(self, field) >= least:
                raise ValueError(f"`{field}` must be at least {least}, got {getattr(self, field)}")

    @cached_property
    def ptr(self) -> list[int]:
        """Returns the bounds of the blocks, [B + 1]."""
        bounds: list[int] = equal_slices(self.num_nodes, self.num_blocks).tolist()
        return bounds

    @cached_property
    def nodes(self) -> np.ndarray:
        """Returns the node of every rank, [N], block by block."""
        blocks = [self._rng(_ORDER, b).permutation(self.size(b)) + self.ptr[b] for b in range(self.num_blocks)]
        return np.concatenate(blocks)

    @cached_property
    def counts(self) -> np.ndarray:
        """Returns the number of undirected edges of every pair of blocks, [B, B], in the upper triangle."""
        rng, sizes = self._rng(_COUNTS), np.diff(self.ptr)
        total = round(self.num_nodes * self.degree / 2)
        leaving = round(total * self.mixing) if self.num_blocks > 1 else 0
        counts = np.diag(_spread(rng, total - leaving, sizes * (sizes - 1) // 2))
        upper = np.triu_indices(self.num_blocks, k=1)
        counts[upper] = _spread(rng, leaving, sizes[upper[0]] * sizes[upper[1]])
        return counts

    @property
    def index(self) -> np.dtype:
        """Returns the type of the indices."""
        small = index_dtype(self.num_nodes + 2 * int(self.counts.sum())) == torch.int32
        return np.dtype(np.int32 if small else np.int64)

    @property
    def num_groups(self) -> int:
        """Returns the number of groups of a block; groups are large enough for the degree of their nodes."""
        most = self.num_nodes / self.num_blocks / max(4 * self.degree, 1)
        return min(max(int(most), 1), _MAX_GROUPS)

    @cached_property
    def labels(self) -> np.ndarray:
        """Returns the class of every node, [N]; one in ten is random."""
        groups = self._rng(_CLASSES).permutation(self.num_blocks * self.num_groups) % self.num_classes
        labels = np.empty(self.num_nodes, dtype=np.int64)
        for block in range(self.num_blocks):
            of_group = groups[block * self.num_groups : (block + 1) * self.num_groups]
            labels[self.nodes[self.slice(block)]] = of_group[np.arange(self.size(block)) % self.num_groups]
        rng = self._rng(_LABELS)
        wrong = rng.random(self.num_nodes) < _LABEL_NOISE
        labels[wrong] = rng.integers(0, self.num_classes, int(wrong.sum()))
        return labels

    @cached_property
    def means(self) -> np.ndarray:
        """Returns the mean features of every class, [C, D]."""
        means = self._rng(_MEANS).standard_normal((self.num_classes, self.in_channels))
        means *= self.signal / np.linalg.norm(means, axis=1, keepdims=True)
        return means.astype(np.float32)

    def slice(self, block: int) -> slice:
        """Returns the nodes of a block."""
        return slice(self.ptr[block], self.ptr[block + 1])

    def size(self, block: int) -> int:
        """Returns the number of nodes of a block, `S`."""
        return self.ptr[block + 1] - self.ptr[block]

    def rows(self, block: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws the rows of a block with self-loops: entries per row, [S], and their sorted columns."""
        loops = np.arange(self.ptr[block], self.ptr[block + 1])
        rows, cols = [loops], [loops]
        for other in range(self.num_blocks):
            ends = self.edges(min(block, other), max(block, other))
            if other >= block:
                rows.append(ends[0])
                cols.append(ends[1])
            if other <= block:
                rows.append(ends[1])
                cols.append(ends[0])
        key = (np.concatenate(rows) - self.ptr[block]) * self.num_nodes + np.concatenate(cols)
        key.sort()
        return np.bincount(key // self.num_nodes), (key % self.num_nodes).astype(self.index)

    def edges(self, block: int, other: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws the undirected edges between two blocks, or within one: ends in `block`, ends in `other`."""
        rng, wanted = self._rng(_EDGES, block, other), int(self.counts[block, other])
        key = np.empty(0, dtype=np.int64)
        for _ in range(_MAX_DRAWS):
            if len(key) == wanted:
                break
            key = _once(np.concatenate((key, self._draw(rng, block, other, wanted - len(key)))))
        size = self.size(other)
        return self.nodes[self.ptr[block] + key // size], self.nodes[self.ptr[other] + key % size]

    def features(self, block: int) -> np.ndarray:
        """Draws the features of a block, [S, D]: the mean of the class plus noise."""
        shape = (self.size(block), self.in_channels)
        x = self._rng(_FEATURES, block).standard_normal(shape, dtype=np.float32)
        x += self.means[self.labels[self.slice(block)]]
        return x

    def masks(self) -> dict[str, np.ndarray]:
        """Draws a random split; empty masks are left out."""
        rank = self._rng(_SPLIT).permutation(self.num_nodes)
        bounds = np.rint(np.cumsum((0, *_SHARES)) * self.num_nodes).astype(np.int64)
        masks = {split: (rank >= bounds[i]) & (rank < bounds[i + 1]) for i, split in enumerate(SPLITS)}
        return {split: mask for split, mask in masks.items() if mask.any()}

    def _draw(self, rng: np.random.Generator, block: int, other: int, count: int) -> np.ndarray:
        """Draws pairs of ranks as single numbers; within a block the smaller rank comes first, without self-loops."""
        size = self.size(other)
        u, v = self._ranks(rng, self.size(block), count), self._ranks(rng, size, count)
        if block != other:
            pairs: np.ndarray = u * size + v
            return pairs
        group = u % self.num_groups
        members = (size - group + self.num_groups - 1) // self.num_groups
        mate = group + self.num_groups * self._ranks(rng, members, count)
        v = np.where(rng.random(count) < _COHESION, mate, v)
        once: np.ndarray = (np.minimum(u, v) * size + np.maximum(u, v))[u != v]
        return once

    def _ranks(self, rng: np.random.Generator, size: int | np.ndarray, count: int) -> np.ndarray:
        ranks: np.ndarray = (size * rng.random(count) ** self.skew).astype(np.int64)
        return ranks

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, *key))


def _spread(rng: np.random.Generator, total: int, capacity: np.ndarray) -> np.ndarray:
    """Distributes `total` edges at random in proportion to the capacities, and never above them."""
    if not capacity.sum():
        return np.zeros_like(capacity)
    counts: np.ndarray = np.minimum(rng.multinomial(total, capacity / capacity.sum()), capacity)
    return counts


def _once(key: np.ndarray) -> np.ndarray:
    # `numpy.unique` uses a hash table, which takes ten times as long for a million numbers
    key.sort()
    return key[np.diff(key, prepend=-1) > 0]


def _rowptr(degrees: np.ndarray, index: np.dtype) -> np.ndarray:
    return np.concatenate(([0], degrees.cumsum())).astype(index)


def _values(degrees: np.ndarray, rows: slice, cols: np.ndarray) -> np.ndarray:
    """Computes `D^-1/2 (A + I) D^-1/2` at the entries of some rows."""
    scale = torch.from_numpy(degrees).double().rsqrt().numpy()
    values: np.ndarray = np.repeat(scale[rows], degrees[rows]) * scale[cols]
    return values.astype(np.float32)
