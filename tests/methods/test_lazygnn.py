from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn.config import Config
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.history import NoHistory, StoredHistory
from lazygnn.methods import Built, build, resolve
from lazygnn.propagation import Drift, LazyPropagation, Mix, diffuse
from lazygnn.propagation.response import Response, fit_response

Make = Callable[..., Built]
MakeLazy = Callable[..., LazyPropagation]
Unchecked = Callable[..., Config]


def stored(history: object) -> StoredHistory:
    assert isinstance(history, StoredHistory)
    return history


def test_lazygnn_drifts_and_stores_no_gradients_by_default(make_lazy: MakeLazy) -> None:
    lazy = make_lazy("lazygnn", beta=0.2)
    assert stored(lazy.features).warm == Drift(0.2)
    assert isinstance(lazy.gradients, NoHistory)
    assert stored(make_lazy("lazygnn", gamma=0.4).gradients).warm == Drift(0.4)


@pytest.mark.parametrize(("num_layers", "beta"), [(1, 1 - 0.9**0.5), (2, 1 - 0.9), (4, 1 - 0.9**2)])
def test_beta_grows_with_the_steps_so_that_the_reach_stays(make_lazy: MakeLazy, num_layers: int, beta: float) -> None:
    assert stored(make_lazy("lazygnn", num_layers=num_layers).features).warm == Drift(beta)


def test_histories_are_as_wide_as_what_is_propagated(make_lazy: MakeLazy) -> None:
    lazy = make_lazy("lazygnn", prop_channels=5)
    # result and input of a pass
    assert lazy.features.num_bytes == 2 * 60 * 5 * 4


def test_inference_options_reach_the_propagation(make_lazy: MakeLazy) -> None:
    lazy = make_lazy("lazygnn", eval_layers=4, eval_tolerance=1e-3)
    assert (lazy.eval_layers, lazy.eval_tolerance) == (4, 1e-3)


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        (
            "lazygnn",
            {"halo_gradients": True},
            "`halo_gradients` is true, but `num_parts` is 1, .*omit `halo_gradients`",
        ),
        (
            "lazygnn",
            {"level": 0.9, "start": "mix"},
            "`level` is 0.9, but `start` is mix, .*; set `start=drift`, or omit `level`",
        ),
        ("lazygnn-paper", {"level": 0.8}, "`level` is 0.8, but `start` is mix, with which no response is fitted"),
        (
            "lazygnn",
            {"level": 0.9, "response": "plain"},
            "`level` is 0.9, but `response` is plain, .*; set `response=fitted`",
        ),
        (
            "lazygnn",
            {"halo": "none", "halo_gradients": True, "num_parts": 4},
            "`halo_gradients` is true, but `halo` is none, .*; set `halo=frozen`, or omit `halo_gradients`",
        ),
    ],
)
def test_an_option_without_effect_is_refused(method: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(method, "some", values)


def test_a_run_made_before_an_option_was_refused_is_built_as_it_was(unchecked: Unchecked, block_graph: Graph) -> None:
    old = unchecked("lazygnn-paper", level=0.9, parts_per_batch=4, halo="frozen", keep_batches=False)
    propagation = build(old, block_graph).model.propagation
    assert isinstance(propagation, LazyPropagation)
    assert propagation.response is None


def test_gradients_are_stored_for_the_halo_on_request(make_lazy: MakeLazy) -> None:
    lazy = make_lazy("lazygnn", num_parts=4, halo_gradients=True)
    assert stored(lazy.gradients).warm == Mix(1.0)
    both = make_lazy("lazygnn", num_parts=4, halo_gradients=True, gamma=0.5)
    assert stored(both.gradients).warm == Drift(0.5)


def test_gradients_for_the_halo_change_nothing_without_a_halo(unchecked: Unchecked, block_graph: Graph) -> None:
    grads = []
    for kept in (False, True):
        torch.manual_seed(0)
        config = unchecked("lazygnn", halo_gradients=kept, label_step=False, dropout=0.0, level=0.5)
        built = build(config, block_graph)
        built.model.train()
        batch = next(iter(built.loader))
        weights = list(built.model.parameters())
        # the first visit, which finds no history, and a second one
        grads += [torch.autograd.grad(built.model(batch).square().sum(), weights) for _ in range(2)]
    for without, kept_too in zip(grads[:2], grads[2:], strict=True):
        for one, other in zip(without, kept_too, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize("values", [{}, {"response": "plain"}, {"start": "mix"}], ids=str)
def test_a_step_is_taken_on_labeled_rows_on_request(make: Make, block_graph: Graph, values: dict[str, Any]) -> None:
    built = make("lazygnn", label_step=True, num_layers=1, dropout=0.0, **values)
    (batch,) = built.loader
    assert batch.labeled is not None
    assert torch.equal(batch.labeled.rows, block_graph.masks["train"].nonzero()[:, 0])
    prop, x = built.model.propagation, torch.rand(60, 3, generator=torch.Generator().manual_seed(0))
    assert isinstance(prop, LazyPropagation)
    out = prop.train()(x, batch)
    # nothing is stored yet, so the whole input counts as a change
    response = prop.response or Response.plain(2)
    twice = response.start * x
    for weight in response.sources:
        twice = diffuse([block_graph.adj], twice, weight * x, 0.1)
    torch.testing.assert_close(out[batch.labeled.rows], twice[batch.labeled.rows])
    if not values:
        assert prop.response == fit_response(block_graph.adj, 0.1, 1, further=1, beta=1 - 0.9**0.5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"num_parts": 4},
            "`num_parts` is 4; it needs full batch: set `num_parts=1`, or omit `label_step`",
        ),
        ({"gamma": 0.5}, r"`gamma` is 0\.5; it stores no gradients: set `gamma=1`, or omit `label_step`"),
        (
            {"halo_gradients": True},
            "`halo_gradients` is true; it stores no gradients: omit `halo_gradients` or `label_step`",
        ),
    ],
)
def test_a_step_on_labeled_rows_has_its_conditions(
    unchecked: Unchecked, block_graph: Graph, values: dict[str, Any], message: str
) -> None:
    message = f"`label_step` is true, but {message}"
    with pytest.raises(ConfigError, match=message):
        resolve("lazygnn", "block", values | {"label_step": True})
    # by default it is left out
    assert next(iter(build(unchecked("lazygnn", **values), block_graph).loader)).labeled is None
    # a configuration that was not resolved here
    with pytest.raises(ConfigError, match=message):
        build(unchecked("lazygnn", **values, label_step=True), block_graph)


def test_a_response_is_fitted_to_the_graph(make_lazy: MakeLazy, block_graph: Graph) -> None:
    assert make_lazy("lazygnn", response="plain").response is None
    assert make_lazy("lazygnn", start="mix").response is None
    default = make_lazy("lazygnn")
    assert default.response == fit_response(block_graph.adj, 0.1, 2, further=1, beta=0.1)
    values = {"response": "fitted", "num_layers": 3, "level": 0.9, "beta": 0.0, "label_step": False}
    assert make_lazy("lazygnn", **values).response == fit_response(block_graph.adj, 0.1, 3, level=0.9)
    with pytest.raises(ConfigError, match=r"`response` is fitted, but `start` is mix, .*; set `start=drift`, or omit"):
        make_lazy("lazygnn", response="fitted", start="mix")


FITTED: dict[str, Any] = {"response": "fitted", "edges": "device"}


@pytest.mark.parametrize(
    ("method", "values", "chosen"),
    [
        ("lazygnn", {"num_layers": 4}, FITTED | {"beta": 0.19, "label_step": True, "level": 0.85}),
        ("lazygnn", {"num_layers": 1}, FITTED | {"beta": 0.051317, "label_step": True, "level": 0.85}),
        ("lazygnn", {"num_parts": 4}, FITTED | {"beta": 0.1, "label_step": False, "level": 0.8}),
        ("lazygnn", {"gamma": 0.5}, FITTED | {"beta": 0.1, "label_step": False, "level": 0.8}),
        ("lazygnn", {"halo_gradients": True}, FITTED | {"beta": 0.1, "label_step": False, "level": 0.8}),
        ("lazygnn", {"label_step": False, "level": 0.9}, FITTED | {"beta": 0.1}),
        ("lazygnn", {"label_step": True, "beta": 0.3, "edges": "device"}, {"response": "fitted", "level": 0.85}),
        (
            "lazygnn",
            {"response": "plain", "beta": 0.123456789, "features": "host"},
            {"label_step": False, "edges": "host"},
        ),
        ("lazygnn", {"start": "mix"}, {"beta": 0.1, "response": "plain", "label_step": False, "edges": "device"}),
        ("lazygnn-paper", {}, {"response": "plain", "label_step": False, "edges": "device"}),
        ("gcn-gas", {}, {"edges": "device"}),
    ],
)
def test_what_is_left_open_is_chosen(
    unchecked: Unchecked, method: str, values: dict[str, Any], chosen: dict[str, Any]
) -> None:
    options = unchecked(method, **values).model
    assert options.chosen() == chosen
    # what was set stays as it was set
    filled = options.resolved()
    assert {name: getattr(filled, name) for name in values} == values
    assert {name: getattr(filled, name) for name in chosen} == pytest.approx(chosen, abs=1e-6)
