"""METIS and KaMinPar, on arrays or on a file; run as a program, this file divides the graph of a file.

It imports numpy and one engine alone, so that a process with it starts in a fraction of a second.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Literal

import numpy as np

Engine = Literal["metis", "kaminpar"]
# parts may be this share heavier than the mean, as by default in METIS
_IMBALANCE = 0.03
# the binary format of ParHIP: a word of flags, number of nodes, number of entries; then pointers as positions in the
# file in 64 bits, neighbors in 32 bits, and weights of nodes in 64 bits if there are any
HEADER_BYTES, POINTER_BYTES, NODE_BYTES = 24, 8, 4
NO_EDGE_WEIGHTS, NO_NODE_WEIGHTS, NODES_IN_32_BITS = 1, 2, 8
# KaMinPar divides graphs of at most this many nodes without making them smaller first
_SMALL_FOR_KAMINPAR = 4000
_DIE_WITH_PARENT = 1


def metis_parts(
    rowptr: np.ndarray, col: np.ndarray, num_parts: int, seed: int, weights: np.ndarray | None
) -> np.ndarray:
    """Returns the part of every node, [N]; the pattern is symmetric and has no self-loops."""
    import pymetis

    dtype = pymetis.zero_copy_dtype()
    if len(col) > np.iinfo(dtype).max:
        raise OverflowError(f"too many entries for this build of METIS, which counts in {dtype}")
    neighbors = pymetis.CSRAdjacency(rowptr.astype(dtype, copy=False), col.astype(dtype, copy=False))
    vweights = None if weights is None else weights.astype(dtype, copy=False)
    options = pymetis.Options(seed=seed % 2**31)
    return np.array(pymetis.part_graph(num_parts, neighbors, vweights=vweights, options=options).vertex_part)


def kaminpar_parts(file: Path, num_parts: int, seed: int) -> np.ndarray:
    """Returns the part of every node of a file, [N].

    The graph is compressed as it is read; the settings for little memory crash on one that is not. One thread gives
    the same parts each time.

    A small graph is not compressed: KaMinPar 3.7.3 would copy it without setting whether nodes are sorted by degree, so
    that the parts would depend on what the memory held before.
    """
    import kaminpar

    kaminpar.reseed(seed % 2**31)
    small = _num_nodes(file) <= _SMALL_FOR_KAMINPAR
    graph = kaminpar.load_graph(str(file), kaminpar.GraphFileFormat.PARHIP, compress=not small)
    worker = kaminpar.KaMinPar(1, kaminpar.default_context() if small else kaminpar.terapart_context())
    return np.array(worker.compute_partition(graph, k=num_parts, eps=_IMBALANCE))


def read_graph_file(file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Returns row pointers, neighbors and weights of a graph file; the arrays are mapped into memory."""
    flags, num_nodes, num_entries = np.fromfile(file, dtype=np.uint64, count=3).tolist()
    start = HEADER_BYTES + POINTER_BYTES * (num_nodes + 1)
    positions = np.memmap(file, dtype=np.int64, mode="r", offset=HEADER_BYTES, shape=(num_nodes + 1,))
    rowptr = (positions - start) // NODE_BYTES
    if num_entries == 0:
        col = np.empty(0, dtype=np.uint32)
    else:
        col = np.memmap(file, dtype=np.uint32, mode="r", offset=start, shape=(num_entries,))
    weights = None
    if not flags & NO_NODE_WEIGHTS:
        end = start + NODE_BYTES * num_entries
        weights = np.fromfile(file, dtype=np.int64, count=num_nodes, offset=end)
    return rowptr, col, weights


def _num_nodes(file: Path) -> int:
    return int(np.fromfile(file, dtype=np.uint64, count=2)[1])


def main(engine: str, file: str, out: str, num_parts: str, seed: str, parent: str) -> None:
    """Divides the graph of a file and writes the part of every node."""
    _end_with(int(parent))
    if engine == "metis":
        rowptr, col, weights = read_graph_file(Path(file))
        found = metis_parts(rowptr, col, int(num_parts), int(seed), weights)
    else:
        found = kaminpar_parts(Path(file), int(num_parts), int(seed))
    np.save(out, found.astype(np.int64, copy=False))


def _end_with(parent: int) -> None:
    """Leaves Ctrl-C to the parent, which ends this process; ends with a parent that is killed, where Linux can."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
