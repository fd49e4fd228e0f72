"""What a lazy pass does to each mode of the graph: the plots of docs/concepts/staleness.md.

In a mode of `A` with eigenvalue `z`, the exact solution multiplies the input by `h(z) = alpha / (1 - (1 - alpha) z)`. A
lazy scheme answers a standing input with one factor and fresh noise with another; both have closed forms.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from experiments.grid import markdown
from lazygnn import ops
from lazygnn.data import load_graph
from lazygnn.ops import Adjacency
from lazygnn.propagation.response import Response, fit_response

PICTURE = Path("docs") / "images" / "staleness-modes.png"
DATASETS = ("arxiv", "wordnet", "cora", "pubmed", "amazon_computers", "coauthor_cs")
ALPHA, BETA, NUM_LAYERS = 0.1, 0.1, 2
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
        root: Array = np.sqrt(fresh**2 + later**2 / (1 - keep**2))
        return root


@dataclass(frozen=True)
class OnLabels:
    """What labelled rows see: `q x + alpha (share u + (1 - share) u_before)`, one step on what is stored."""

    stored: Scheme
    share: float

    def fresh(self, z: Array) -> Array:
        """The answer to a change."""
        fresh: Array = _left(z, 1) * self.stored.fresh(z) + ALPHA * self.share
        return fresh

    def standing(self, z: Array) -> Array:
        """The factor on an input that does not change, after many passes."""
        standing: Array = _left(z, 1) * self.stored.standing(z) + ALPHA
        return standing

    def noise(self, z: Array) -> Array:
        """Root mean square of the answer to noise that is drawn anew in every pass, of variance one."""
        keep = self.stored.keep(z)
        echo = _left(z, 1) * (keep * self.stored.fresh(z) + self.stored.past(z))
        later = echo + ALPHA * (1 - self.share)
        root: Array = np.sqrt(self.fresh(z) ** 2 + later**2 + (keep * echo) ** 2 / (1 - keep**2))
        return root


def exact(z: Array) -> Array:
    """The fixed point."""
    factor: Array = ALPHA / (1 - (1 - ALPHA) * z)
    return factor


def steps_from_input(z: Array, num_layers: int) -> Array:
    """`num_layers` plain steps that start from the input."""
    factor: Array = _left(z, num_layers) + (1 - _left(z, num_layers)) * exact(z)
    return factor


def mix(beta: float, num_layers: int) -> Scheme:
    """The paper's start, Eq. (6)."""
    return Scheme(
        keep=lambda z: (1 - beta) * _left(z, num_layers),
        fresh=lambda z: steps_from_input(z, num_layers) - (1 - beta) * _left(z, num_layers),
        past=np.zeros_like,
    )


def drift(beta: float, num_layers: int) -> Scheme:
    """Our start: the stored solution moves with its input, then a little mix."""
    return Scheme(
        keep=lambda z: (1 - beta) * _left(z, num_layers),
        fresh=lambda z: steps_from_input(z, num_layers),
        past=lambda z: -(1 - beta) * _left(z, num_layers),
    )


def fitted(response: Response, beta: float) -> Scheme:
    """A drift and a little mix whose answer to a change is fitted to the graph (`lazygnn.propagation.response`)."""
    coefficients, num_layers = response.polynomial(ALPHA), len(response.sources)

    def fresh(z: Array) -> Array:
        value: Array = np.polynomial.polynomial.polyval(z, coefficients)
        return value

    return Scheme(
        keep=lambda z: (1 - beta) * _left(z, num_layers),
        fresh=fresh,
        past=lambda z: (1 - _left(z, num_layers)) * exact(z) + beta * _left(z, num_layers) - fresh(z),
    )


def main(root: str | None) -> None:
    """Measures the spectra, draws what each scheme does to a mode, and prints how much noise it lets through."""
    graphs = {name: load_graph(name, root).adj for name in DATASETS}
    spectra = {name: density(adj) for name, adj in graphs.items()}
    rows = []
    for name, adj in graphs.items():
        z, share = spectra[name]
        schemes, ten = _schemes(adj), steps_from_input(z, 10)
        through = [_mean(ten, share), *(_mean(scheme.noise(z), share) for scheme in schemes.values())]
        apart = [_mean(scheme.fresh(z) - ten, share) for scheme in schemes.values()]
        rows.append([name, *(f"{value:.3f}" for value in (*through, *apart))])
    titles = [*(f"noise, {name}" for name in ("exact", *schemes)), *(f"off, {name}" for name in schemes)]
    print(markdown(["graph", *titles], rows))
    _draw(spectra, _schemes(graphs["wordnet"]))


def on_labels(response: Response, beta: float) -> OnLabels:
    """The same where one step more is taken: the default of a full batch."""
    return OnLabels(fitted(Response(response.start, response.sources[:-1]), beta), response.sources[-1])


def _schemes(adj: Adjacency) -> dict[str, Scheme | OnLabels]:
    """The paper's start, the drift alone, what is fitted to a graph, and that with a step on labelled rows."""
    return {
        "mix": mix(0.5, NUM_LAYERS),
        "drift": drift(0.0, NUM_LAYERS),
        "fitted": fitted(fit_response(adj, ALPHA, NUM_LAYERS, beta=BETA), BETA),
        "on labels": on_labels(fit_response(adj, ALPHA, NUM_LAYERS, further=1, beta=BETA), BETA),
    }


def _draw(spectra: Mapping[str, tuple[Array, Array]], schemes: Mapping[str, Scheme | OnLabels]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.8), layout="constrained")
    modes, standing, fresh = figure.subplots(1, 3)
    edges = np.linspace(-1, 1, 41)
    for name, (z, share) in spectra.items():
        modes.stairs(np.histogram(z, edges, weights=share)[0], edges, label=name)
    z = np.linspace(-0.8, 1, 400)
    for panel in (standing, fresh):
        panel.plot(z, steps_from_input(z, 10), "k", label="exact, 10 steps")
    for name, scheme in schemes.items():
        standing.plot(z, scheme.standing(z), label=name)
        fresh.plot(z, np.abs(scheme.fresh(z)), label=name)
    for panel, title in (
        (modes, "share of modes"),
        (standing, "answer to a standing input"),
        (fresh, "answer to a fresh change"),
    ):
        panel.set(title=title, xlabel="eigenvalue of A")
        panel.legend(frameon=False)
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


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


def _left(z: Array, num_layers: int) -> Array:
    """What the steps leave of a start value."""
    left: Array = ((1 - ALPHA) * z) ** num_layers
    return left


def _mean(values: Array, share: Array) -> float:
    """Root mean square over the modes."""
    return float(np.sqrt((share * values**2).sum()))
