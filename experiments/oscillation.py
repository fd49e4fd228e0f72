"""Oscillation of training in a mode of the graph: lag of the propagation in a loop with the optimizer's momentum.

A weight `w` moves a mode of the input by `u = w`. The propagated value `y` has a loss of some curvature. Its gradient
`g` returns through the backward pass, and Adam is momentum with a gain, since its denominator changes slowly:

    m <- mu m + (1 - mu) g,    w <- w - gain m.

The gain is the learning rate times the curvature over Adam's denominator. With `g = G(t) Y(t) u`, where `t` shifts by
one pass, every oscillation is a root `t` of

    (t - 1) (t - mu) + (1 - mu) gain t G(t) Y(t) = 0

and decays by the modulus of that root in every pass.
"""

import math

import numpy as np

from common.provenance import provenance
from common.summary import Cell, Column, Row, Summary
from experiments.cases import DATASETS, EXACT
from experiments.schemes import (
    ALPHA,
    BETA,
    NUM_LAYERS,
    Array,
    LabelStep,
    Scheme,
    drift,
    label_step,
    mix,
    steps_from_input,
)
from lazygnn.data import load_graph
from lazygnn.propagation.response import fit_response

Ratio = tuple[Array, Array]  # of polynomials, highest power first
MOMENTUM = 0.9
# from slow oscillations to a period of three passes; from 38 on, exact steps do not decay in the smoothest mode
GAINS = np.geomspace(2, 30, 40)
LEVELS = (0.7, 0.8, 0.85, 0.9, 1.0)


def main(root: str | None) -> Summary:
    """Returns a table of the decay in the smoothest mode, and of the passes that halve an oscillation."""
    paper, plain = mix(0.5, NUM_LAYERS), drift(BETA, NUM_LAYERS)
    any_graph = {
        EXACT: slowest_decay(*exact_loop(1.0)),
        "the paper: mix 0.5, 2 steps": slowest_decay(*loop(paper, 1.0, stored_gradient=True)),
        "mix 0.5, no stored gradient, 2 steps": slowest_decay(*loop(paper, 1.0)),
        "drift and mix, 2 steps": slowest_decay(*loop(plain, 1.0)),
    }
    rows = [Row(label=case, cells=[_cell(value)] * len(DATASETS)) for case, value in any_graph.items()]
    matrices = [load_graph(name, root).adj for name in DATASETS]
    for level in LEVELS:
        responses = [fit_response(adj, ALPHA, NUM_LAYERS, further=1, beta=BETA, level=level) for adj in matrices]
        found = [slowest_decay(*loop(label_step(response, BETA), 1.0)) for response in responses]
        rows.append(Row(label=f"fitted to {level}, 2 steps, and 1 on labels", cells=list(map(_cell, found))))
    return Summary(
        origin="python -m experiments oscillation",
        label="case, decay per pass / passes until an oscillation is halved",
        columns=[Column(title=name, format="{decay:.3f} / {passes}") for name in DATASETS],
        rows=rows,
        sources=[provenance()],
    )


def forward(scheme: Scheme | LabelStep, z: float) -> Ratio:
    """Returns `Y` of a mode: the transfer function of the forward passes."""
    at = np.array([z])
    stored = scheme.stored if isinstance(scheme, LabelStep) else scheme
    above = np.array([stored.fresh(at)[0], stored.past(at)[0]])
    below = np.array([1.0, -stored.keep(at)[0]])
    if not isinstance(scheme, LabelStep):
        return above, below
    source = ALPHA * np.array([scheme.share, 1 - scheme.share])
    above = np.polyadd((1 - ALPHA) * z * np.polymul(above, [1, 0]), np.polymul(source, below))
    return above, np.polymul(below, [1, 0])


def loop(scheme: Scheme | LabelStep, z: float, *, stored_gradient: bool = False) -> Ratio:
    """Returns `G Y`: the backward pass is the response to a change or, with a stored gradient, a whole pass."""
    above, below = forward(scheme, z)
    if not stored_gradient:
        return above * scheme.fresh(np.array([z]))[0], below
    return np.polymul(above, above), np.polymul(below, below)


def exact_loop(z: float) -> Ratio:
    """Returns `G Y` of ten exact steps."""
    factor: Array = steps_from_input(np.array([z]), 10)
    return factor**2, np.ones(1)


def decay(above: Array, below: Array, gain: float, momentum: float = MOMENTUM) -> float:
    """Returns the factor by which the most persistent oscillation of a loop shrinks in one pass."""
    free = np.polymul(np.polymul([1, -1], [1, -momentum]), below)
    pulled = (1 - momentum) * gain * np.polymul([1, 0], above)
    return float(np.abs(np.roots(np.polyadd(free, pulled))).max())


def slowest_decay(above: Array, below: Array) -> float:
    """Returns the slowest decay over `GAINS`."""
    return max(decay(above, below, gain) for gain in GAINS)


def _cell(decay: float) -> Cell:
    passes = f"{math.log(0.5) / math.log(decay):.0f}" if decay < 1 else "grows"
    return {"decay": round(decay, 5), "passes": passes, "sources": [0]}
