"""The file of plain PyTorch as part of the library; tests/commands/test_exporting.py runs it alone."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

from lazygnn.export import plain
from lazygnn.graph import Graph
from lazygnn.models.sage import mean_of_neighbors
from tests.helpers import dense_steps, exact_solution, random_graph, random_rows


def test_the_file_imports_torch_and_safetensors_alone() -> None:
    found = set()
    for node in ast.walk(ast.parse(Path(plain.__file__).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    standard = {"json", "math", "sys", "collections", "itertools", "pathlib", "typing", "warnings", "zipfile"}
    # numpy is for the program alone
    assert found == standard | {"torch", "safetensors", "numpy"}


def test_matrices_are_those_of_the_library(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    # one-way and repeated edges, self-loops, a node without edges
    edges, weight = rng.integers(0, 19, (2, 60)), rng.random(60)
    graph = Graph.from_edges(edges, np.ones((20, 1)), edge_weight=weight)
    given = torch.from_numpy(edges), torch.from_numpy(weight), 20
    torch.testing.assert_close(plain.normalized_adjacency(*given).to_dense(), graph.adj.to_dense())
    torch.testing.assert_close(plain.mean_of_neighbors(*given).to_dense(), mean_of_neighbors(graph.adj).to_dense())
    unweighted = Graph.from_edges(edges, np.ones((20, 1)))
    torch.testing.assert_close(plain.normalized_adjacency(given[0], None, 20).to_dense(), unweighted.adj.to_dense())


@pytest.mark.parametrize("alpha", [0.1, 0.7, 1.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_fixed_point_is_that_of_the_library(alpha: float, sign: int) -> None:
    graph, x = random_graph(40, 90), random_rows(40, 5, 1)
    spread = plain.Spread({"alpha": alpha, "sign": sign, "steps": None, "tolerance": 1e-9})
    adj = graph.adj.to_dense()
    torch.testing.assert_close(spread(x, adj), exact_solution(graph.adj, x, alpha, sign=sign), rtol=0, atol=1e-7)
    assert torch.equal(spread(torch.zeros_like(x), adj), torch.zeros_like(x))
    few = plain.Spread({"alpha": alpha, "sign": sign, "steps": 3, "tolerance": 0.0})
    torch.testing.assert_close(few(x, adj), dense_steps(adj, x, x, alpha, 3, sign=sign))
