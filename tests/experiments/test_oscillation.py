"""Oscillation of training in a mode: the roots of the loop against the loop itself."""

import numpy as np
import pytest

from experiments import oscillation
from experiments.schemes import ALPHA, LabelStep, Scheme, drift, label_step, mix
from lazygnn.graph import Graph
from lazygnn.propagation.response import Response, fit_response


def decay_per_pass(scheme: Scheme | LabelStep, z: float, gain: float, *, stored_gradient: bool = False) -> float:
    """Runs the loop: a lazy pass, a gradient, momentum; it is linear, so its state is rescaled."""
    at = np.array([z])
    stored = scheme.stored if isinstance(scheme, LabelStep) else scheme
    keep, fresh, past = (float(part(at)[0]) for part in (stored.keep, stored.fresh, stored.past))
    state, logs = np.array([1.0, 0.0, 0.0, 0.0, 0.0]), []
    for _ in range(3000):
        w, m, x, before, g = state
        x = keep * x + fresh * w + past * before
        y = x
        if isinstance(scheme, LabelStep):
            y = 0.9 * z * x + 0.1 * (scheme.share * w + (1 - scheme.share) * before)
        g = keep * g + fresh * y if stored_gradient else float(scheme.fresh(at)[0]) * y
        m = 0.9 * m + 0.1 * g
        state = np.array([w - gain * m, m, x, w, g])
        size = np.linalg.norm(state)
        logs.append(np.log(size))
        state = state / size
    return float(np.exp(np.mean(logs[1000:])))


@pytest.mark.parametrize("z", [1.0, 0.9, -0.4])
@pytest.mark.parametrize("gain", [3.0, 20.0])
def test_oscillations_decay_by_the_largest_root(z: float, gain: float) -> None:
    for scheme in (
        mix(0.5, 2),
        drift(0.1, 2),
        label_step(Response(0.9, (-0.4, 0.8, 0.7)), 0.1),
    ):
        found = oscillation.decay(*oscillation.loop(scheme, z), gain)
        assert found == pytest.approx(decay_per_pass(scheme, z, gain), abs=2e-3)
    paper = mix(0.5, 2)
    found = oscillation.decay(*oscillation.loop(paper, z, stored_gradient=True), gain)
    assert found == pytest.approx(decay_per_pass(paper, z, gain, stored_gradient=True), abs=2e-3)


def test_oscillations_of_exact_steps_decay_by_the_momentum_alone() -> None:
    for z in (1.0, 0.95):
        assert oscillation.slowest_decay(*oscillation.exact_loop(z)) == pytest.approx(0.9**0.5)


def test_a_lower_level_oscillates_longer_and_level_1_as_long_as_exact_steps(block_graph: Graph) -> None:
    def slowest(level: float) -> float:
        response = fit_response(block_graph.adj, ALPHA, 2, further=1, beta=0.1, level=level)
        return oscillation.slowest_decay(*oscillation.loop(label_step(response, 0.1), 1.0))

    found = [slowest(level) for level in (0.7, 0.8, 0.85, 0.9, 1.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1 > found[1]
    assert found[-1] == pytest.approx(0.9**0.5, abs=3e-3)


def test_the_table_has_a_row_for_every_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oscillation, "DATASETS", ["wordnet-small"])
    monkeypatch.setattr(oscillation, "LEVELS", (0.7, 1.0))
    lines = oscillation.main(None).markdown().splitlines()
    assert lines[2] == "| exact, 10 steps | 0.949 / 13 |"
    assert lines[3].startswith("| the paper: mix 0.5, 2 steps | 1.4")
    assert lines[6].startswith("| fitted to 0.7, 2 steps, and 1 on labels | 1.0")
    assert all(line.endswith(" / grows |") for line in (lines[3], lines[4], lines[6]))
    assert lines[7].startswith("| fitted to 1.0, 2 steps, and 1 on labels | 0.9")
