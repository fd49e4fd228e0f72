"""How long training swings in a mode of the graph: a lag of the propagation in a loop with the optimizer's momentum.

A weight `w` moves a mode of the input by `u = w`; what is propagated, `y`, has a loss of some curvature; its gradient
`g` comes back through the backward pass, and Adam, whose denominator changes slowly, is momentum with a gain:

    m <- mu m + (1 - mu) g,    w <- w - gain m.

The gain is the learning rate times the curvature over Adam's denominator. With `g = G(t) Y(t) u`, `t` the shift by one
pass, every swing is a root `t` of

    (t - 1) (t - mu) + (1 - mu) gain t G(t) Y(t) = 0

and dies out by the modulus of that root in every pass.
"""

import math

import numpy as np

from experiments.grid import markdown
from experiments.spectrum import (
    ALPHA,
    BETA,
    DATASETS,
    NUM_LAYERS,
    OnLabels,
    Scheme,
    drift,
    mix,
    on_labels,
    steps_from_input,
)
from lazygnn.data import load_graph
from lazygnn.propagation.response import fit_response

Array = np.ndarray
Ratio = tuple[Array, Array]  # of polynomials, highest power first
MOMENTUM = 0.9
# from slow swings to those of three passes; from 38 on, exact steps swing for ever in the smoothest mode
GAINS = np.geomspace(2, 30, 40)
LEVELS = (0.7, 0.8, 0.85, 0.9, 1.0)


def forward(scheme: Scheme | OnLabels, z: float) -> Ratio:
    """`Y` of a mode: what comes out of passes for what goes in."""
    at = np.array([z])
    stored = scheme.stored if isinstance(scheme, OnLabels) else scheme
    above = np.array([stored.fresh(at)[0], stored.past(at)[0]])
    below = np.array([1.0, -stored.keep(at)[0]])
    if not isinstance(scheme, OnLabels):
        return above, below
    source = ALPHA * np.array([scheme.share, 1 - scheme.share])
    above = np.polyadd((1 - ALPHA) * z * np.polymul(above, [1, 0]), np.polymul(source, below))
    return above, np.polymul(below, [1, 0])


def loop(scheme: Scheme | OnLabels, z: float, *, stored_gradient: bool = False) -> Ratio:
    """`G Y`: the backward pass has the answer to a change, or, with a stored gradient, all of a pass."""
    above, below = forward(scheme, z)
    if not stored_gradient:
        return above * scheme.fresh(np.array([z]))[0], below
    return np.polymul(above, above), np.polymul(below, below)


def decay(above: Array, below: Array, gain: float, momentum: float = MOMENTUM) -> float:
    """What is left of the longest swing of a loop after one pass."""
    free = np.polymul(np.polymul([1, -1], [1, -momentum]), below)
    pulled = (1 - momentum) * gain * np.polymul([1, 0], above)
    return float(np.abs(np.roots(np.polyadd(free, pulled))).max())


def longest(above: Array, below: Array) -> float:
    """The slowest decay over `GAINS`."""
    return max(decay(above, below, gain) for gain in GAINS)


def exact_loop(z: float) -> Ratio:
    """`G Y` of ten exact steps."""
    factor: Array = steps_from_input(np.array([z]), 10)
    return factor**2, np.ones(1)


def main(root: str | None) -> None:
    """Prints the decay in the smoothest mode, and in how many passes a swing is halved."""
    paper, plain = mix(0.5, NUM_LAYERS), drift(BETA, NUM_LAYERS)
    everywhere = {
        "exact, 10 steps": longest(*exact_loop(1.0)),
        "the paper: mix 0.5, 2 steps": longest(*loop(paper, 1.0, stored_gradient=True)),
        "mix 0.5, no stored gradient, 2 steps": longest(*loop(paper, 1.0)),
        "drift and mix, 2 steps": longest(*loop(plain, 1.0)),
    }
    rows = [[case, *[_cell(value)] * len(DATASETS)] for case, value in everywhere.items()]
    matrices = [load_graph(name, root).adj for name in DATASETS]
    for level in LEVELS:
        responses = [fit_response(adj, ALPHA, NUM_LAYERS, further=1, beta=BETA, level=level) for adj in matrices]
        found = [longest(*loop(on_labels(response, BETA), 1.0)) for response in responses]
        rows.append([f"fitted to {level}, 2 steps, and 1 on labels", *map(_cell, found)])
    print(markdown(["case, decay in a pass / passes until a swing is halved", *DATASETS], rows))


def _cell(decay: float) -> str:
    return f"{decay:.3f} / {math.log(0.5) / math.log(decay):.0f}" if decay < 1 else f"{decay:.3f} / grows"
