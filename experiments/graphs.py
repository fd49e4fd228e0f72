"""Graphs of the experiments: by name or path, with structural features where a file has none, and a small one."""

import zipfile
from pathlib import Path

import numpy as np

from lazygnn.data import load_graph
from lazygnn.data.datasets import find_graph
from lazygnn.data.synthetic import block_graph
from lazygnn.graph import SPLITS, Graph
from lazygnn.tables.structural import fit_structural, structural_features

# drawn in a moment, to try an experiment
SMALL = "small"


def load(name: str, root: str | None) -> Graph:
    """Loads a graph as `load_graph` does; a file without features gets those of `lazygnn import --structural`."""
    if name == SMALL:
        return block_graph(240, 4, degree=8, in_channels=8, num_classes=4, name=SMALL)
    file = find_graph(name, root)
    if file is None or file.is_dir() or not _lacks_features(file):
        return load_graph(name, root)
    with np.load(file, allow_pickle=False) as fields:
        wanted = ("edge_index", "y", *(f"{split}_mask" for split in SPLITS))
        edges, labels, *masks = (fields[field] for field in wanted)
    named = {f"{split}_mask": mask for split, mask in zip(SPLITS, masks, strict=True)}
    bare = Graph.from_edges(edges, np.zeros((len(labels), 1), np.float32), labels, **named, name=file.stem)
    ids = [str(node) for node in range(bare.num_nodes)]
    features = structural_features(ids, bare.adj, bare.degree, fit_structural(bare.degree))
    return Graph.from_edges(edges, features.numpy(), labels, **named, name=file.stem)


def _lacks_features(file: Path) -> bool:
    if not zipfile.is_zipfile(file):
        return False
    with np.load(file, allow_pickle=False) as fields:
        return not {"x", "x_indptr"} & set(fields.files)
