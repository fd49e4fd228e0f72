"""Models: each `forward` is the equation."""

from lazygnn.models.decoupled import Decoupled
from lazygnn.models.layers import MLP

__all__ = ["MLP", "Decoupled"]
