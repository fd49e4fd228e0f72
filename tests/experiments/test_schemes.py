"""The closed forms of a lazy pass agree with the library."""

import numpy as np
import pytest
import torch

from experiments import schemes
from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import open_history
from lazygnn.history.warmstart import WarmStart
from lazygnn.propagation import Drift, LazyPropagation, Mix
from lazygnn.propagation.response import Response, fit_response

N = 60


@pytest.fixture
def graph(block_graph: Graph) -> Graph:
    adj = block_graph.adj.to(torch.float64)
    return Graph(block_graph.x, block_graph.y, adj, block_graph.degree, block_graph.task, block_graph.masks)


@pytest.mark.parametrize("name", ["mix", "drift", "fitted"])
def test_the_closed_forms_are_what_a_pass_does_to_each_mode(graph: Graph, name: str) -> None:
    fitted = fit_response(graph.adj, schemes.ALPHA, 2, beta=0.2)
    response = fitted if name == "fitted" else None
    start: WarmStart = Mix(0.3) if name == "mix" else Drift(0.2)
    scheme = {"mix": schemes.mix(0.3, 2), "drift": schemes.drift(0.2, 2), "fitted": schemes.fitted(fitted, 0.2)}[name]
    values, modes = torch.linalg.eigh(graph.adj.to_dense())
    history = open_history(N, N, start, dtype=torch.float64, compute_dtype=torch.float64)
    prop, batch = LazyPropagation(schemes.ALPHA, history), Batch.full(graph, 2)
    prop.response = response
    # every mode is an input, and its output is a multiple of it
    for _ in range(300):
        out = prop(modes, batch)
    np.testing.assert_allclose((modes * out).sum(dim=0), scheme.steady_state(values.numpy()), atol=1e-9)
    # doubling the input adds the response to a change
    changed = (modes * prop(2 * modes, batch)).sum(dim=0).numpy()
    np.testing.assert_allclose(changed - (modes * out).sum(dim=0).numpy(), scheme.fresh(values.numpy()), atol=1e-9)


def test_the_closed_forms_are_the_output_on_labeled_rows(graph: Graph) -> None:
    # all rows are labeled, so that modes remain modes
    masks = {"train": torch.ones(N, dtype=torch.bool)}
    graph = Graph(graph.x, graph.y, graph.adj, graph.degree, graph.task, masks)
    response = fit_response(graph.adj, schemes.ALPHA, 2, further=1, beta=0.2)
    scheme, (values, modes) = schemes.label_step(response, 0.2), torch.linalg.eigh(graph.adj.to_dense())
    history = open_history(N, N, Drift(0.2), dtype=torch.float64, compute_dtype=torch.float64)
    prop, batch = LazyPropagation(schemes.ALPHA, history), Batch.full(graph, 2, label_step=True)
    prop.response = response
    for _ in range(300):
        out = prop(modes, batch)
    np.testing.assert_allclose((modes * out).sum(dim=0), scheme.steady_state(values.numpy()), atol=1e-9)
    changed = (modes * prop(2 * modes, batch)).sum(dim=0).numpy()
    np.testing.assert_allclose(changed - (modes * out).sum(dim=0).numpy(), scheme.fresh(values.numpy()), atol=1e-9)


def test_noise_on_labeled_rows_agrees_with_a_long_run() -> None:
    z, rng = np.array([-0.4, 0.2, 0.9]), np.random.default_rng(0)
    scheme = schemes.label_step(Response(0.9, (-0.4, 0.8, 0.7)), 0.1)
    keep, weight, past = scheme.stored.keep(z), scheme.stored.fresh(z), scheme.stored.past(z)
    x, before, seen = np.zeros(3), np.zeros(3), []
    for fresh in rng.normal(size=(40_000, 3)):
        x = keep * x + weight * fresh + past * before
        seen.append(0.9 * z * x + 0.1 * (0.7 * fresh + 0.3 * before))
        before = fresh
    np.testing.assert_allclose(np.std(seen, axis=0), scheme.noise(z), rtol=0.03)


def test_noise_agrees_with_a_long_run() -> None:
    z, rng = np.array([-0.4, 0.2, 0.9]), np.random.default_rng(0)
    for scheme in (schemes.mix(0.5, 2), schemes.drift(0.0, 2)):
        keep, weight, past = scheme.keep(z), scheme.fresh(z), scheme.past(z)
        x, before, seen = np.zeros(3), np.zeros(3), []
        for fresh in rng.normal(size=(40_000, 3)):
            x, before = keep * x + weight * fresh + past * before, fresh
            seen.append(x)
        np.testing.assert_allclose(np.std(seen, axis=0), scheme.noise(z), rtol=0.03)


def test_the_steady_state_is_exact_for_a_drift_and_not_for_a_mix() -> None:
    z = np.linspace(-0.9, 1, 50)
    response = Response(0.9, (-0.4, 0.8))
    for scheme in (schemes.drift(0.0, 2), schemes.drift(0.0, 3), schemes.fitted(response, 0.0)):
        np.testing.assert_allclose(scheme.steady_state(z), schemes.exact(z), atol=1e-12)
    assert np.abs(schemes.mix(0.5, 2).steady_state(z) - schemes.exact(z)).max() > 0.2
