"""The estimate of VR-GCN: exact with exact histories, linear in their error, and unbiased with any."""

import math

import pytest
import torch
from torch import Tensor

from lazygnn.batch import Batch, ControlBatch
from lazygnn.graph import Graph
from lazygnn.loader import ControlLoader
from lazygnn.models import VRGCN, PrecomputedGCN
from lazygnn.models.layers import dropout
from lazygnn.ops import spmm
from lazygnn.propagation import Mix
from tests.helpers import open_float64, random_rows

ALL = torch.arange(60)


def make(graph: Graph, num_layers: int = 2, dropout: float = 0.0, input_dropout: float = 0.0) -> VRGCN:
    torch.manual_seed(0)
    histories = [open_float64(60, 5, Mix(1.0)) for _ in range(num_layers - 1)]
    model = VRGCN(
        graph.in_channels,
        5,
        3,
        num_layers=num_layers,
        dropout=dropout,
        input_dropout=input_dropout,
        histories=histories,
    )
    return model.double().train()


def batch_of(graph: Graph, seed: int, *, num_layers: int = 1, num_neighbors: int = 2) -> ControlBatch:
    loader = ControlLoader(graph, num_layers, num_neighbors=num_neighbors)
    batch = loader.make(torch.arange(0, 60, 3), torch.Generator().manual_seed(seed))
    assert isinstance(batch, ControlBatch)
    return batch


def store(model: VRGCN, rows: Tensor, index: int = 0) -> None:
    model.histories[index].push(ALL, rows, rows)


def estimate(graph: Graph, values: Tensor, stored: Tensor, seed: int) -> Tensor:
    """Estimates the sums over neighbors for the targets of a batch with two neighbors each."""
    model, batch = make(graph), batch_of(graph, seed)
    store(model, stored)
    return model.estimate(0, values[batch.nodes[: batch.adjs[0].num_cols]], batch)


def test_with_exact_histories_the_estimate_is_exact(graph: Graph) -> None:
    values = random_rows(60, 5, 1)
    exact = spmm(graph.adj, values)[torch.arange(0, 60, 3)]
    for seed in range(3):
        torch.testing.assert_close(estimate(graph, values, values, seed), exact, rtol=0, atol=1e-12)


def test_the_error_of_the_estimate_is_linear_in_that_of_the_histories(graph: Graph) -> None:
    values, change = random_rows(60, 5, 1), random_rows(60, 5, 2)
    exact = spmm(graph.adj, values)[torch.arange(0, 60, 3)]
    one = estimate(graph, values, values + change, 0) - exact
    assert float(one.norm()) > 0.1
    for share in (0.01, 0.1, 10.0):
        found = estimate(graph, values, values + share * change, 0) - exact
        torch.testing.assert_close(found, share * one, rtol=0, atol=1e-11)


@pytest.mark.parametrize("error", [0.1, 1.0])
def test_the_estimate_is_unbiased_with_wrong_histories(graph: Graph, error: float) -> None:
    """Means over 200 samples: within 5 standard errors, which are smaller for better histories."""
    values, change = random_rows(60, 5, 1), random_rows(60, 5, 2)
    exact = spmm(graph.adj, values)[torch.arange(0, 60, 3)]
    samples = torch.stack([estimate(graph, values, values + error * change, seed) for seed in range(200)])
    deviation = samples.std(dim=0)
    assert bool(((samples.mean(dim=0) - exact).abs() <= 5 * deviation / math.sqrt(200) + 1e-12).all())
    assert 0 < float(deviation.mean()) < error


def test_with_all_neighbors_it_is_the_gcn_whatever_is_stored(graph: Graph) -> None:
    model = make(graph, num_layers=3)
    store(model, random_rows(60, 5, 1), 0)
    store(model, random_rows(60, 5, 2), 1)
    batch = batch_of(graph, 0, num_layers=2, num_neighbors=60)
    out, exact = model(batch), PrecomputedGCN.forward(model, Batch.full(graph, 2))[batch.targets]
    torch.testing.assert_close(out, exact)
    direction = random_rows(20, 3, 3)
    expected = torch.autograd.grad((exact * direction).sum(), list(model.parameters()))
    found = torch.autograd.grad((out * direction).sum(), list(model.parameters()))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_dropout_adds_noise_to_an_estimate_without_dropout(graph: Graph) -> None:
    """Outputs of a model with dropout are those without, plus the noise of sampled neighbors; histories hold none."""
    noisy, clean, batch = make(graph, dropout=0.5, input_dropout=0.3), make(graph), batch_of(graph, 0)
    stored = random_rows(60, 5, 1)
    for model in (noisy, clean):
        store(model, stored)
    torch.manual_seed(5)
    out, base = noisy(batch), clean(batch)
    assert torch.equal(*(model.histories[0].start(ALL, 0, stored[:0]).x for model in (noisy, clean)))
    torch.manual_seed(5)
    assert isinstance(batch.x, Tensor)
    mean = torch.relu(noisy.first(batch.x))
    dropped = torch.relu(noisy.first(dropout(batch.x, 0.3, True)))
    noise = dropout(dropped, 0.5, True) - mean
    last = noisy.gcn.layers[0]
    assert isinstance(last.weight, Tensor)
    torch.testing.assert_close(out, base + batch.noise[0].to_dense() @ noise @ last.weight)


def test_the_nodes_computed_are_stored(graph: Graph) -> None:
    model, batch = make(graph), batch_of(graph, 0)
    model.fill(batch)
    computed = batch.nodes[: batch.adjs[0].num_cols]
    stored = model.histories[0].start(ALL, 0, torch.zeros(0, 5, dtype=torch.float64)).x
    assert isinstance(batch.x, Tensor)
    torch.testing.assert_close(stored[computed], torch.relu(model.first(batch.x)).detach())
    others = torch.ones(60, dtype=torch.bool)
    others[computed] = False
    assert bool(others.any())
    assert not bool(stored[others].any())


def test_without_histories_or_in_evaluation_sampled_sums_are_plain(graph: Graph) -> None:
    model, batch = make(graph), batch_of(graph, 0)
    store(model, random_rows(60, 5, 1))
    plain = PrecomputedGCN.forward(model, batch)
    assert not torch.allclose(model(batch), plain)
    torch.testing.assert_close(model.eval()(batch), plain)
    model.train().histories = []
    torch.testing.assert_close(model(batch), plain)


def test_a_wrong_number_of_histories_is_refused() -> None:
    with pytest.raises(ValueError, match="3 layers need 2 histories or none, got 1"):
        VRGCN(3, 5, 2, num_layers=3, histories=[open_float64(4, 5, Mix(1.0))])
