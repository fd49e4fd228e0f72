"""Swings of training in a mode: the roots of the loop against the loop itself."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn.graph import Graph
from lazygnn.response import Response, fit_response


@pytest.fixture
def ringing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    return importlib.import_module("experiments.ringing")


@pytest.fixture
def spectrum(ringing: Any) -> Any:
    return importlib.import_module("experiments.spectrum")


def left_after_a_pass(scheme: Any, labels: Any, z: float, gain: float, passes: int = 3000) -> float:
    """The loop as it runs: a lazy pass, a gradient, momentum; rescaled, since it is linear and dies out."""
    at = np.array([z])
    keep, fresh, past = (float(part(at)[0]) for part in (scheme.keep, scheme.fresh, scheme.past))
    backward = float((scheme if labels is None else labels).fresh(at)[0])
    w, m, x, before, logs = 1.0, 0.0, 0.0, 0.0, []
    for _ in range(passes):
        x = keep * x + fresh * w + past * before
        y = x if labels is None else 0.9 * z * x + 0.1 * (labels.share * w + (1 - labels.share) * before)
        m, before = 0.9 * m + 0.1 * backward * y, w
        w -= gain * m
        size = float(np.sqrt(w**2 + m**2 + x**2 + before**2))
        logs.append(np.log(size))
        w, m, x, before = w / size, m / size, x / size, before / size
    return float(np.exp(np.mean(logs[passes // 3 :])))


@pytest.mark.parametrize("z", [1.0, 0.9, -0.4])
@pytest.mark.parametrize("gain", [3.0, 20.0])
def test_a_swing_dies_out_as_the_roots_say(ringing: Any, spectrum: Any, z: float, gain: float) -> None:
    response = Response(0.9, (-0.4, 0.8, 0.7))
    labels = spectrum.on_labels(response, 0.1)
    for scheme, seen in ((spectrum.mix(0.5, 2), None), (spectrum.drift(0.1, 2), None), (labels.stored, labels)):
        backward = float((seen or scheme).fresh(np.array([z]))[0])
        found = ringing.decay(*ringing.transfer(seen or scheme, z), backward, gain)
        assert found == pytest.approx(left_after_a_pass(scheme, seen, z, gain), abs=2e-3)


def test_swings_of_exact_steps_die_out_by_the_momentum_alone(ringing: Any) -> None:
    assert ringing.longest(None, 1.0) == pytest.approx(0.9**0.5)
    assert ringing.longest(None, 0.8) == pytest.approx(0.9**0.5)


def test_a_lower_level_swings_longer_and_one_of_1_as_long_as_exact_steps(
    ringing: Any, spectrum: Any, block_graph: Graph
) -> None:
    def longest(level: float) -> float:
        response = fit_response(block_graph.adj, spectrum.ALPHA, 2, further=1, mix=0.1, level=level)
        found: float = ringing.longest(spectrum.on_labels(response, 0.1), 1.0)
        return found

    found = [longest(level) for level in (0.7, 0.8, 0.85, 0.9, 1.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1 > found[1]
    assert found[-1] == pytest.approx(ringing.longest(None, 1.0), abs=3e-3)


def test_the_table_has_a_row_for_every_level(
    ringing: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ringing, "DATASETS", ["wordnet-small"])
    monkeypatch.setattr(ringing, "LEVELS", (0.7, 1.0))
    ringing.main(None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| exact, 10 steps | 0.949 / 1.0 |"
    assert lines[3].startswith("| fitted to 0.7, 2 steps, and 1 on labels | 1.0")
    assert lines[3].endswith(" / grows |")
    assert lines[4].startswith("| fitted to 1.0, 2 steps, and 1 on labels | 0.9")
