"""Propagation, exact and lazy. `passes.py` has the equations of the paper; read it first."""

from lazygnn.propagation.base import Diffusion, NoPropagation, Propagation, diffuse, estimating, solves
from lazygnn.propagation.diagnostics import named_diagnostics
from lazygnn.propagation.drift import Drift
from lazygnn.propagation.exact import ExactPropagation
from lazygnn.propagation.historical import HistoricalPropagation, LayerMemory, layer_matrices
from lazygnn.propagation.lazy import LazyPropagation
from lazygnn.propagation.passes import Mix
from lazygnn.propagation.response import Response, fit_response

__all__ = [
    "Diffusion",
    "Drift",
    "ExactPropagation",
    "HistoricalPropagation",
    "LayerMemory",
    "LazyPropagation",
    "Mix",
    "NoPropagation",
    "Propagation",
    "Response",
    "diffuse",
    "estimating",
    "fit_response",
    "layer_matrices",
    "named_diagnostics",
    "solves",
]
