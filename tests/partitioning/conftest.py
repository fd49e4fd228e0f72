import pytest

from lazygnn.data.synthetic import block_graph
from lazygnn.graph import Graph


@pytest.fixture(scope="module")
def blocks() -> Graph:
    return block_graph(600, 6, degree=10, in_channels=4, num_classes=3, seed=1)
