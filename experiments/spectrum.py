"""The spectra of six graphs and the noise that each scheme lets through: a table and a figure."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from common.provenance import provenance
from common.summary import Cell, Column, Row, Summary
from experiments.cases import DATASETS
from experiments.schemes import (
    ALPHA,
    BETA,
    NUM_LAYERS,
    Array,
    LabelStep,
    Scheme,
    drift,
    fitted,
    label_step,
    mix,
    steps_from_input,
)
from lazygnn import ops
from lazygnn.data import load_graph
from lazygnn.ops import Adjacency
from lazygnn.propagation.response import fit_response
from lazygnn.run.plotting import COLORS, drawing, legend_above

FIGURE = Path("docs") / "images" / "staleness-modes.png"
FITTED_TO = "wordnet"
MOMENTS, PROBES, POINTS = 60, 8, 400

Spectra = Mapping[str, tuple[Array, Array]]


def main(root: str | None, figure: Path) -> Summary:
    """Draws the spectra and the schemes, and returns a table of the noise that comes through and the error."""
    graphs = {name: load_graph(name, root).adj for name in DATASETS}
    spectra = {name: density(adj) for name, adj in graphs.items()}
    rows = [Row(label=name, cells=_cells(_schemes(graphs[name]), *spectra[name])) for name in graphs]
    schemes = _schemes(graphs[FITTED_TO])
    draw(spectra, schemes, figure)
    titles = [*(f"noise, {name}" for name in ("exact", *schemes)), *(f"error, {name}" for name in schemes)]
    return Summary(
        origin="python -m experiments spectrum",
        label="graph",
        columns=[Column(title=title, format="{value:.3f}") for title in titles],
        rows=rows,
        sources=[provenance()],
    )


def density(adj: Adjacency, seed: int = 0) -> tuple[Array, Array]:
    """Returns eigenvalues of `adj` and the share of modes near each, by the kernel polynomial method.

    Chebyshev moments are estimated with random signs and damped by Jackson's kernel.
    """
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


def draw(spectra: Spectra, schemes: Mapping[str, Scheme | LabelStep], path: Path) -> None:
    """Draws the spectra, and the responses of the schemes to a constant input and to a change."""
    with drawing(path, 1, 3, size=(12, 4)) as (figure, panels):
        modes, steady, change = panels[0]
        edges = np.linspace(-0.8, 1, 37)
        for color, (name, (z, share)) in zip(COLORS, spectra.items(), strict=False):
            modes.stairs(100 * np.histogram(z, edges, weights=share)[0], edges, label=name, color=color, linewidth=1.3)
        z = np.linspace(-0.8, 1, 400)
        for panel in (steady, change):
            panel.plot(z, steps_from_input(z, 10), color="black", linestyle="-", label="exact, 10 steps")
        for name, scheme in schemes.items():
            steady.plot(z, scheme.steady_state(z), label=name)
            change.plot(z, np.abs(scheme.fresh(z)), label=name)
        modes.set(title="spectra", ylabel="share of modes (%)")
        steady.set(title="response to a constant input", ylabel="output / input")
        change.set(title="response to a change, in the same pass", ylabel="|output / change|")
        for panel in panels[0]:
            panel.set(xlabel="eigenvalue of A")
        legend_above(figure, [modes], side="left", width=0.36)
        legend_above(figure, [steady], side="right", width=0.6)


def _cells(schemes: Mapping[str, Scheme | LabelStep], z: Array, share: Array) -> list[Cell | None]:
    ten = steps_from_input(z, 10)
    noise = [ten, *(scheme.noise(z) for scheme in schemes.values())]
    errors = [scheme.fresh(z) - ten for scheme in schemes.values()]
    return [{"value": round(_root_mean_square(values, share), 5), "sources": [0]} for values in (*noise, *errors)]


def _schemes(adj: Adjacency) -> dict[str, Scheme | LabelStep]:
    """Returns the paper's mix, the drift, the response fitted to a graph, and that with a step on labeled rows."""
    return {
        "mix": mix(0.5, NUM_LAYERS),
        "drift": drift(0.0, NUM_LAYERS),
        "fitted": fitted(fit_response(adj, ALPHA, NUM_LAYERS, beta=BETA), BETA),
        "label step": label_step(fit_response(adj, ALPHA, NUM_LAYERS, further=1, beta=BETA), BETA),
    }


def _root_mean_square(values: Array, share: Array) -> float:
    """Returns the root mean square over the modes."""
    return float(np.sqrt((share * values**2).sum()))
