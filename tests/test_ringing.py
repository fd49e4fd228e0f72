"""Swings of training in a mode: the roots of the loop against the loop itself."""

import importlib
from typing import Any

import numpy as np
import pytest

from lazygnn.graph import Graph
from lazygnn.propagation.response import Response, fit_response


@pytest.fixture
def ringing(spectrum: Any) -> Any:
    assert spectrum
    return importlib.import_module("experiments.ringing")


def left_after_a_pass(scheme: Any, z: float, gain: float, *, stored_gradient: bool = False) -> float:
    """The loop as it runs: a lazy pass, a gradient, momentum; rescaled, since it is linear."""
    at, on_labels = np.array([z]), hasattr(scheme, "stored")
    stored = scheme.stored if on_labels else scheme
    keep, fresh, past = (float(part(at)[0]) for part in (stored.keep, stored.fresh, stored.past))
    state, logs = np.array([1.0, 0.0, 0.0, 0.0, 0.0]), []
    for _ in range(3000):
        w, m, x, before, g = state
        x = keep * x + fresh * w + past * before
        y = 0.9 * z * x + 0.1 * (scheme.share * w + (1 - scheme.share) * before) if on_labels else x
        g = keep * g + fresh * y if stored_gradient else float(scheme.fresh(at)[0]) * y
        m = 0.9 * m + 0.1 * g
        state = np.array([w - gain * m, m, x, w, g])
        size = np.linalg.norm(state)
        logs.append(np.log(size))
        state = state / size
    return float(np.exp(np.mean(logs[1000:])))


@pytest.mark.parametrize("z", [1.0, 0.9, -0.4])
@pytest.mark.parametrize("gain", [3.0, 20.0])
def test_a_swing_dies_out_as_the_roots_say(ringing: Any, spectrum: Any, z: float, gain: float) -> None:
    for scheme in (
        spectrum.mix(0.5, 2),
        spectrum.drift(0.1, 2),
        spectrum.on_labels(Response(0.9, (-0.4, 0.8, 0.7)), 0.1),
    ):
        found = ringing.decay(*ringing.loop(scheme, z), gain)
        assert found == pytest.approx(left_after_a_pass(scheme, z, gain), abs=2e-3)
    paper = spectrum.mix(0.5, 2)
    found = ringing.decay(*ringing.loop(paper, z, stored_gradient=True), gain)
    assert found == pytest.approx(left_after_a_pass(paper, z, gain, stored_gradient=True), abs=2e-3)


def test_swings_of_exact_steps_die_out_by_the_momentum_alone(ringing: Any) -> None:
    for z in (1.0, 0.95):
        assert ringing.longest(*ringing.exact_loop(z)) == pytest.approx(0.9**0.5)


def test_a_lower_level_swings_longer_and_one_of_1_as_long_as_exact_steps(
    ringing: Any, spectrum: Any, block_graph: Graph
) -> None:
    def longest(level: float) -> float:
        response = fit_response(block_graph.adj, spectrum.ALPHA, 2, further=1, beta=0.1, level=level)
        found: float = ringing.longest(*ringing.loop(spectrum.on_labels(response, 0.1), 1.0))
        return found

    found = [longest(level) for level in (0.7, 0.8, 0.85, 0.9, 1.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1 > found[1]
    assert found[-1] == pytest.approx(0.9**0.5, abs=3e-3)


def test_the_table_has_a_row_for_every_level(
    ringing: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ringing, "DATASETS", ["wordnet-small"])
    monkeypatch.setattr(ringing, "LEVELS", (0.7, 1.0))
    ringing.main(None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| exact, 10 steps | 0.949 / 13 |"
    assert lines[3].startswith("| the paper: mix 0.5, 2 steps | 1.4")
    assert lines[6].startswith("| fitted to 0.7, 2 steps, and 1 on labels | 1.0")
    assert all(line.endswith(" / grows |") for line in (lines[3], lines[4], lines[6]))
    assert lines[7].startswith("| fitted to 1.0, 2 steps, and 1 on labels | 0.9")
