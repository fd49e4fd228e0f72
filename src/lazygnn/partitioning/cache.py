"""Partitions on disk, so that they are computed once."""

import hashlib
import logging
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lazygnn.checks import rises
from lazygnn.files import replaced
from lazygnn.graph import is_permutation
from lazygnn.ops import Adjacency
from lazygnn.partitioning.base import Partition
from lazygnn.untrusted.arrays import open_archive

logger = logging.getLogger(__name__)

_FORMAT_VERSION = 2


def default_cache() -> Path:
    """Returns the folder in the environment variable `LAZYGNN_CACHE`, or `~/.cache/lazygnn`."""
    folder = os.environ.get("LAZYGNN_CACHE")
    return Path(folder) if folder else Path.home() / ".cache" / "lazygnn"


class PartitionCache:
    """The partitions of one graph in a folder, for one number of parts, seed and weight of every node.

    Args:
        folder: The folder; it may not exist.
        adj: The adjacency.
        num_parts: The number of parts.
        seed: The seed.
        weights: Weight of every node; `None` means one.
    """

    def __init__(
        self, folder: Path, adj: Adjacency, num_parts: int, seed: int, weights: np.ndarray | None = None
    ) -> None:
        self.folder, self.num_nodes, self.num_parts = folder, adj.num_rows, num_parts
        digest = hashlib.blake2b(f"{_FORMAT_VERSION} {num_parts} {seed}".encode(), digest_size=16)
        for array in (adj.rowptr, adj.col):
            digest.update(array.cpu().contiguous().numpy().data)
        if weights is not None:
            digest.update(weights.data)
        self._key = digest.hexdigest()

    def file(self, method: str) -> Path:
        """Returns the file of the partition that a method finds."""
        return self.folder / f"partition-{method}-{self._key}.npz"

    def read(self, method: str) -> Partition | None:
        """Reads a partition, whichever version of an engine found it; returns `None` if it is missing or corrupt."""
        file = self.file(method)
        if not file.is_file():
            return None
        try:
            with open_archive(file) as arrays:
                order, ptr = torch.from_numpy(arrays.read("order")), torch.from_numpy(arrays.read("ptr"))
                engine = str(arrays.read("engine"))
            _check(order, ptr, self.num_nodes, self.num_parts)
        # a corrupt archive can fail in zip, zlib or numpy's header parser
        except Exception as error:
            logger.warning("the cached partition `%s` is corrupt (%s) and is computed again", file, error)
            return None
        return Partition(order, ptr, method, engine)

    def write(self, found: Partition) -> None:
        """Writes a partition; a folder that cannot be written is a warning."""
        try:
            with replaced(self.file(found.method)) as unfinished, unfinished.open("wb") as stream:
                np.savez(stream, order=found.order.numpy(), ptr=found.ptr.numpy(), engine=np.array(found.engine))
        except OSError as error:
            logger.warning("the partition cannot be cached in `%s` (%s)", self.folder, error)


def _check(order: Tensor, ptr: Tensor, num_nodes: int, num_parts: int) -> None:
    if order.dtype != torch.int64 or ptr.dtype != torch.int64 or len(ptr) != num_parts + 1:
        raise ValueError(f"{len(ptr) - 1} parts, of type {order.dtype} and {ptr.dtype}")
    if not rises(ptr, num_nodes, by=1):
        raise ValueError(f"parts that do not rise from 0 to {num_nodes}")
    if not is_permutation(order, num_nodes):
        raise ValueError("an order that does not hold every node once")
