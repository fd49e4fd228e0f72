"""What a lazy pass does to each mode of the graph: the plots of docs/concepts/staleness.md.

In a mode of `A` with eigenvalue `z`, the exact solution multiplies the input by `h(z) = alpha / (1 - (1 - alpha) z)`. A
lazy scheme answers a standing input with one factor and fresh noise with another; both have closed forms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from lazygnn import ops
from lazygnn.data import load_graph
from lazygnn.ops import Adjacency

ALPHA = 0.1
MOMENTS, PROBES, POINTS = 60, 8, 400

Array = np.ndarray


@dataclass(frozen=True)
class Scheme:
    """A pass as a filter in one mode: `x <- keep(z) x + fresh(z) u + past(z) u_before`."""

    keep: Callable[[Array], Array]
    fresh: Callable[[Array], Array]
    past: Callable[[Array], Array]

    def standing(self, z: Array) -> Array:
        """The factor on an input that does not change, after many passes."""
        standing: Array = (self.fresh(z) + self.past(z)) / (1 - self.keep(z))
        return standing

    def noise(self, z: Array) -> Array:
        """Root mean square of the answer to noise that is drawn anew in every pass, of variance one."""
        keep, fresh, past = self.keep(z), self.fresh(z), self.past(z)
        later = keep * fresh + past
        return np.sqrt(fresh**2 + later**2 / (1 - keep**2))


def exact(z: Array) -> Array:
    """The fixed point."""
    return ALPHA / (1 - (1 - ALPHA) * z)


def steps_from_input(z: Array, num_layers: int) -> Array:
    """`num_layers` plain steps that start from the input."""
    left = ((1 - ALPHA) * z) ** num_layers
    return left + (1 - left) * exact(z)


def mix(beta: float, num_layers: int) -> Scheme:
    """The paper's start, Eq. (6)."""
    return Scheme(
        keep=lambda z: (1 - beta) * ((1 - ALPHA) * z) ** num_layers,
        fresh=lambda z: steps_from_input(z, num_layers) - (1 - beta) * ((1 - ALPHA) * z) ** num_layers,
        past=np.zeros_like,
    )


def drift(beta: float, num_layers: int) -> Scheme:
    """Our start: the stored solution moves with its input, then a little mix."""
    return Scheme(
        keep=lambda z: (1 - beta) * ((1 - ALPHA) * z) ** num_layers,
        fresh=lambda z: steps_from_input(z, num_layers),
        past=lambda z: -(1 - beta) * ((1 - ALPHA) * z) ** num_layers,
    )


def density(adj: Adjacency, seed: int = 0) -> tuple[Array, Array]:
    """Eigenvalues of `adj` and the share of modes near each: Chebyshev moments of random signs, Jackson's kernel."""
    generator = torch.Generator().manual_seed(seed)
    probe = torch.randn(adj.num_rows, PROBES, generator=generator).sign().to(adj.device)
    before, now = probe, ops.spmm(adj, probe)
    moments = [1.0, float((probe * now).mean())]
    for _ in range(MOMENTS - 2):
        before, now = now, 2 * ops.spmm(adj, now) - before
        moments.append(float((probe * now).mean()))
    order, turn = np.arange(MOMENTS), np.pi / (MOMENTS + 1)
    damping = ((MOMENTS - order + 1) * np.cos(turn * order) + np.sin(turn * order) / np.tan(turn)) / (MOMENTS + 1)
    angle = np.pi * (np.arange(POINTS) + 0.5) / POINTS
    weights = np.where(order == 0, 1, 2) * damping * np.array(moments)
    share: Array = np.clip(np.cos(np.outer(angle, order)) @ weights, 0, None)
    return np.cos(angle), share / share.sum()
