import numpy as np
import pytest
import torch

from lazygnn.tables.schema import Structural
from lazygnn.tables.structural import fit_structural, random_signs, structural_features
from tests.helpers import random_graph

IDS = [f"node {number}" for number in range(30)]


def test_the_degree_is_scaled_and_the_signs_are_propagated() -> None:
    graph = random_graph(30, 60).to(torch.float32)
    settings = fit_structural(graph.degree)
    x = structural_features(IDS, graph.adj, graph.degree, settings).double()
    assert x.shape == (30, settings.width) == (30, 33)
    assert float(x[:, 0].mean()) == pytest.approx(0, abs=1e-6)
    assert float(x[:, 0].std(correction=0)) == pytest.approx(1)
    adj, signs, total = graph.adj.to_dense().double(), random_signs(IDS, 32).double(), torch.zeros(30, 32).double()
    for _ in range(3):
        signs = adj @ signs
        total += signs / signs.norm(dim=1, keepdim=True)
    torch.testing.assert_close(x[:, 1:], total * 32**0.5 / 3, rtol=1e-5, atol=1e-5)


def test_features_move_with_the_nodes() -> None:
    graph = random_graph(30, 60).to(torch.float32)
    order = torch.from_numpy(np.random.default_rng(0).permutation(30))
    moved = graph.permute(order)
    settings = Structural(signs=12, hops=2)
    x = structural_features(IDS, graph.adj, graph.degree, settings)
    again = structural_features([IDS[node] for node in order.tolist()], moved.adj, moved.degree, settings)
    torch.testing.assert_close(again, x[order])


def test_equal_degrees_are_not_divided_by_zero() -> None:
    assert fit_structural(torch.full((4,), 2.0)).scale == 1


def test_signs_are_balanced_and_differ_between_ids() -> None:
    signs = random_signs([str(number) for number in range(500)], 20)
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    assert float(signs.mean(dim=0).abs().max()) < 0.2
    assert float((signs.T @ signs / 500 - torch.eye(20)).abs().max()) < 0.2
    assert random_signs(["a", "b"], 20).tolist() == random_signs(["b", "a"], 20).flip(0).tolist()
