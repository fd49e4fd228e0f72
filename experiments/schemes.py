"""A lazy pass in one mode of the graph: closed forms of docs/concepts/staleness.md.

In a mode of `A` with eigenvalue `z`, the exact solution multiplies the input by `h(z) = alpha / (1 - (1 - alpha) z)`. A
lazy scheme multiplies a constant input and a change of the input by other factors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lazygnn.propagation.response import Response

ALPHA, BETA, NUM_LAYERS = 0.1, 0.1, 2

Array = np.ndarray


@dataclass(frozen=True)
class Scheme:
    """A pass as a filter in one mode: `x <- keep(z) x + fresh(z) u + past(z) u_before`."""

    keep: Callable[[Array], Array]
    fresh: Callable[[Array], Array]
    past: Callable[[Array], Array]

    def steady_state(self, z: Array) -> Array:
        """Returns the factor on a constant input after many passes."""
        factor: Array = (self.fresh(z) + self.past(z)) / (1 - self.keep(z))
        return factor

    def noise(self, z: Array) -> Array:
        """Returns the root mean square of the response to noise of variance one, drawn independently in every pass."""
        keep, fresh, past = self.keep(z), self.fresh(z), self.past(z)
        later = keep * fresh + past
        root: Array = np.sqrt(fresh**2 + later**2 / (1 - keep**2))
        return root


@dataclass(frozen=True)
class LabelStep:
    """The output on labeled rows: one step on the stored result, `q x + alpha (share u + (1 - share) u_before)`."""

    stored: Scheme
    share: float

    def fresh(self, z: Array) -> Array:
        """Returns the response to a change, in the same pass."""
        fresh: Array = _remaining(z, 1) * self.stored.fresh(z) + ALPHA * self.share
        return fresh

    def steady_state(self, z: Array) -> Array:
        """Returns the factor on a constant input after many passes."""
        factor: Array = _remaining(z, 1) * self.stored.steady_state(z) + ALPHA
        return factor

    def noise(self, z: Array) -> Array:
        """Returns the root mean square of the response to noise of variance one, drawn independently in every pass."""
        keep = self.stored.keep(z)
        echo = _remaining(z, 1) * (keep * self.stored.fresh(z) + self.stored.past(z))
        later = echo + ALPHA * (1 - self.share)
        root: Array = np.sqrt(self.fresh(z) ** 2 + later**2 + (keep * echo) ** 2 / (1 - keep**2))
        return root


def exact(z: Array) -> Array:
    """Returns the factor of the fixed point."""
    factor: Array = ALPHA / (1 - (1 - ALPHA) * z)
    return factor


def steps_from_input(z: Array, num_layers: int) -> Array:
    """Returns the factor of `num_layers` plain steps that start from the input."""
    factor: Array = _remaining(z, num_layers) + (1 - _remaining(z, num_layers)) * exact(z)
    return factor


def mix(beta: float, num_layers: int) -> Scheme:
    """Returns the paper's start, Eq. (6)."""
    return Scheme(
        keep=lambda z: (1 - beta) * _remaining(z, num_layers),
        fresh=lambda z: steps_from_input(z, num_layers) - (1 - beta) * _remaining(z, num_layers),
        past=np.zeros_like,
    )


def drift(beta: float, num_layers: int) -> Scheme:
    """Returns the start from the stored solution moved by the change of its input, mixed with `beta`."""
    return Scheme(
        keep=lambda z: (1 - beta) * _remaining(z, num_layers),
        fresh=lambda z: steps_from_input(z, num_layers),
        past=lambda z: -(1 - beta) * _remaining(z, num_layers),
    )


def fitted(response: Response, beta: float) -> Scheme:
    """Returns the drift, mixed with `beta`, with a fitted response to a change (`lazygnn.propagation.response`)."""
    coefficients, num_layers = response.polynomial(ALPHA), len(response.sources)

    def fresh(z: Array) -> Array:
        value: Array = np.polynomial.polynomial.polyval(z, coefficients)
        return value

    return Scheme(
        keep=lambda z: (1 - beta) * _remaining(z, num_layers),
        fresh=fresh,
        past=lambda z: (1 - _remaining(z, num_layers)) * exact(z) + beta * _remaining(z, num_layers) - fresh(z),
    )


def label_step(response: Response, beta: float) -> LabelStep:
    """Returns the fitted scheme with one more step on labeled rows: the default of a full batch."""
    return LabelStep(fitted(Response(response.start, response.sources[:-1]), beta), response.sources[-1])


def _remaining(z: Array, num_layers: int) -> Array:
    """Returns the factor by which the steps shrink a start value."""
    remaining: Array = ((1 - ALPHA) * z) ** num_layers
    return remaining
