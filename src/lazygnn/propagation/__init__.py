"""Propagation, exact and lazy: the equations of the paper."""

from lazygnn.propagation.lazy import (
    Diffusion,
    ExactPropagation,
    LazyPropagation,
    NoPropagation,
    Propagation,
    diffuse,
)
from lazygnn.propagation.response import Response, fit_response

__all__ = [
    "Diffusion",
    "ExactPropagation",
    "LazyPropagation",
    "NoPropagation",
    "Propagation",
    "Response",
    "diffuse",
    "fit_response",
]
