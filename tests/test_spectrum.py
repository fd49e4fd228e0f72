"""The closed forms of the figure are what the passes do."""

from typing import Any

import numpy as np
import pytest
import torch

from lazygnn.batch import Batch
from lazygnn.graph import Graph
from lazygnn.history import open_history
from lazygnn.history.warmstart import Drift, Mix, WarmStart
from lazygnn.propagation import LazyPropagation
from lazygnn.propagation.response import Response, fit_response

N = 60


@pytest.fixture
def graph(block_graph: Graph) -> Graph:
    adj = block_graph.adj.to(torch.float64)
    return Graph(block_graph.x, block_graph.y, adj, block_graph.degree, block_graph.task, block_graph.masks)


@pytest.mark.parametrize("name", ["mix", "drift", "fitted"])
def test_the_closed_forms_are_what_a_pass_does_to_each_mode(graph: Graph, spectrum: Any, name: str) -> None:
    response = fit_response(graph.adj, spectrum.ALPHA, 2, beta=0.2) if name == "fitted" else None
    start: WarmStart = Mix(0.3) if name == "mix" else Drift(0.2)
    scheme = {"mix": lambda: spectrum.mix(0.3, 2), "drift": lambda: spectrum.drift(0.2, 2)}.get(
        name, lambda: spectrum.fitted(response, 0.2)
    )()
    values, modes = torch.linalg.eigh(graph.adj.to_dense())
    history = open_history(N, N, start, dtype=torch.float64, compute_dtype=torch.float64)
    prop, batch = LazyPropagation(spectrum.ALPHA, history), Batch.full(graph, 2)
    prop.response = response
    # every mode is an input of its own: what comes out of it is a multiple of it
    for _ in range(300):
        out = prop(modes, batch)
    np.testing.assert_allclose((modes * out).sum(dim=0), scheme.standing(values.numpy()), atol=1e-9)
    # and one that doubles answers with the standing value and the answer to a change
    changed = (modes * prop(2 * modes, batch)).sum(dim=0).numpy()
    np.testing.assert_allclose(changed - (modes * out).sum(dim=0).numpy(), scheme.fresh(values.numpy()), atol=1e-9)


def test_the_closed_forms_are_what_labelled_rows_see(graph: Graph, spectrum: Any) -> None:
    # all rows are labelled, so that a mode stays one
    masks = {"train": torch.ones(N, dtype=torch.bool)}
    graph = Graph(graph.x, graph.y, graph.adj, graph.degree, graph.task, masks)
    response = fit_response(graph.adj, spectrum.ALPHA, 2, further=1, beta=0.2)
    scheme, (values, modes) = spectrum.on_labels(response, 0.2), torch.linalg.eigh(graph.adj.to_dense())
    history = open_history(N, N, Drift(0.2), dtype=torch.float64, compute_dtype=torch.float64)
    prop, batch = LazyPropagation(spectrum.ALPHA, history), Batch.full(graph, 2, label_step=True)
    prop.response = response
    for _ in range(300):
        out = prop(modes, batch)
    np.testing.assert_allclose((modes * out).sum(dim=0), scheme.standing(values.numpy()), atol=1e-9)
    changed = (modes * prop(2 * modes, batch)).sum(dim=0).numpy()
    np.testing.assert_allclose(changed - (modes * out).sum(dim=0).numpy(), scheme.fresh(values.numpy()), atol=1e-9)


def test_noise_on_labelled_rows_is_answered_as_a_long_run_shows(spectrum: Any) -> None:
    z, rng = np.array([-0.4, 0.2, 0.9]), np.random.default_rng(0)
    scheme = spectrum.on_labels(Response(0.9, (-0.4, 0.8, 0.7)), 0.1)
    x, before, seen = np.zeros(3), np.zeros(3), []
    for _ in range(40_000):
        fresh = rng.normal(size=3)
        x = scheme.stored.keep(z) * x + scheme.stored.fresh(z) * fresh + scheme.stored.past(z) * before
        seen.append(0.9 * z * x + 0.1 * (0.7 * fresh + 0.3 * before))
        before = fresh
    np.testing.assert_allclose(np.std(seen, axis=0), scheme.noise(z), rtol=0.03)


def test_noise_is_answered_as_a_long_run_shows(spectrum: Any) -> None:
    z, rng = np.array([-0.4, 0.2, 0.9]), np.random.default_rng(0)
    for scheme in (spectrum.mix(0.5, 2), spectrum.drift(0.0, 2)):
        x, before, seen = np.zeros(3), np.zeros(3), []
        for _ in range(40_000):
            fresh = rng.normal(size=3)
            x, before = scheme.keep(z) * x + scheme.fresh(z) * fresh + scheme.past(z) * before, fresh
            seen.append(x)
        np.testing.assert_allclose(np.std(seen, axis=0), scheme.noise(z), rtol=0.03)


def test_standing_inputs_are_answered_exactly_by_a_drift_and_not_by_a_mix(spectrum: Any) -> None:
    z = np.linspace(-0.9, 1, 50)
    response = Response(0.9, (-0.4, 0.8))
    for scheme in (spectrum.drift(0.0, 2), spectrum.drift(0.0, 3), spectrum.fitted(response, 0.0)):
        np.testing.assert_allclose(scheme.standing(z), spectrum.exact(z), atol=1e-12)
    assert np.abs(spectrum.mix(0.5, 2).standing(z) - spectrum.exact(z)).max() > 0.2


def test_the_density_has_the_moments_of_the_matrix(block_graph: Graph, spectrum: Any) -> None:
    z, share = spectrum.density(block_graph.adj)
    values = torch.linalg.eigvalsh(block_graph.adj.to_dense()).numpy()
    assert share.sum() == pytest.approx(1)
    assert (share * z).sum() == pytest.approx(values.mean(), abs=0.06)
    assert (share * z**2).sum() == pytest.approx((values**2).mean(), abs=0.06)
