"""How long training swings in a mode of the graph: a lag of the propagation in a loop with the optimizer's momentum.

A weight `w` moves a mode of the input by `u = w`; what is propagated, `y`, has a loss of some curvature; the gradient
comes back through `backward`, and Adam, whose denominator changes slowly, is momentum with a gain:

    m <- mu m + (1 - mu) backward y,    w <- w - gain m.

With `y = Y(t) u`, `t` the shift by one pass, every swing is a root `t` of

    (t - 1) (t - mu) + (1 - mu) gain t backward Y(t) = 0

and dies out by the modulus of that root in every pass.
"""

import numpy as np

from experiments.grid import markdown
from experiments.spectrum import ALPHA, BETA, DATASETS, NUM_LAYERS, OnLabels, Scheme, on_labels, steps_from_input
from lazygnn.data import load_graph
from lazygnn.response import fit_response

Array = np.ndarray
MOMENTUM = 0.9
# from slow swings to those of three passes; from about 38 on, exact steps swing for ever
GAINS = np.geomspace(2, 30, 40)
LEVELS = (0.7, 0.8, 0.85, 0.9, 1.0)


def transfer(scheme: Scheme | OnLabels, z: float) -> tuple[Array, Array]:
    """`Y` of a mode as numerator and denominator, highest power first."""
    at = np.array([z])
    stored = scheme.stored if isinstance(scheme, OnLabels) else scheme
    above = np.array([stored.fresh(at)[0], stored.past(at)[0]])
    below = np.array([1.0, -stored.keep(at)[0]])
    if not isinstance(scheme, OnLabels):
        return above, below
    source = ALPHA * np.array([scheme.share, 1 - scheme.share])
    above = np.polyadd((1 - ALPHA) * z * np.polymul(above, [1, 0]), np.polymul(source, below))
    return above, np.polymul(below, [1, 0])


def decay(above: Array, below: Array, backward: float, gain: float, momentum: float = MOMENTUM) -> float:
    """What is left of the longest swing after one pass."""
    free = np.polymul(np.polymul([1, -1], [1, -momentum]), below)
    pushed = (1 - momentum) * gain * backward * np.polymul([1, 0], above)
    return float(np.abs(np.roots(np.polyadd(free, pushed))).max())


def longest(scheme: Scheme | OnLabels | None, z: float) -> float:
    """The slowest decay over all gains, of a scheme or of ten exact steps; a gain is that of the exact loop."""
    exact = float(steps_from_input(np.array([z]), 10)[0])
    gains = GAINS / exact**2
    if scheme is None:
        return max(decay(np.array([exact]), np.array([1.0]), exact, gain) for gain in gains)
    above, below = transfer(scheme, z)
    backward = float(scheme.fresh(np.array([z]))[0])
    return max(decay(above, below, backward, gain) for gain in gains)


def main(root: str | None) -> None:
    """Prints the decay in the smoothest mode and the variance that noise makes of it, relative to exact steps."""
    exact = longest(None, 1.0)
    rows = [["exact, 10 steps", *[_cell(exact, exact)] * len(DATASETS)]]
    matrices = [load_graph(name, root).adj for name in DATASETS]
    for level in LEVELS:
        responses = [fit_response(adj, ALPHA, NUM_LAYERS, further=1, mix=BETA, level=level) for adj in matrices]
        found = [longest(on_labels(response, BETA), 1.0) for response in responses]
        rows.append([f"fitted to {level}, 2 steps, and 1 on labels", *(_cell(value, exact) for value in found)])
    print(markdown(["case, decay in a pass / variance of a swing, of that of exact", *DATASETS], rows))


def _cell(decay: float, exact: float) -> str:
    return f"{decay:.3f} / {(1 - exact**2) / (1 - decay**2):.1f}" if decay < 1 else f"{decay:.3f} / grows"
