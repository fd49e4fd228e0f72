"""A graph on disk, sorted by its partition."""

from dataclasses import replace
from pathlib import Path

import pytest

from lazygnn.data.folder import save_folder
from lazygnn.data.synthetic import block_graph
from lazygnn.partitioning import partition


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with 150 nodes in five parts."""
    graph = block_graph(150, 3, degree=6, in_channels=8, num_classes=3, seed=2)
    parts = partition(graph, 5)
    folder = tmp_path_factory.mktemp("prepared") / "graph"
    save_folder(replace(graph.permute(parts.order), part_ptr=parts.ptr), folder)
    return folder
