"""Checks and errors that the readers of public data sets share; each error names the file."""

from pathlib import Path

import numpy as np

from lazygnn.checks import first_outside
from lazygnn.errors import GraphError

# a damaged file can put anything into a message
_MAX_REASON = 300


def unreadable(path: Path, error: Exception) -> GraphError:
    """Returns the error for a file that is missing or cannot be parsed."""
    if isinstance(error, FileNotFoundError):
        return GraphError(f"`{path}` is missing; put the file there or download the data set again")
    return GraphError(
        f"`{path}` cannot be read ({type(error).__name__}: {str(error)[:_MAX_REASON]}); download it again"
    )


def check_nodes(path: Path, nodes: np.ndarray, num_nodes: int) -> None:
    """Refuses indices of nodes that do not exist."""
    if (wrong := first_outside(nodes, num_nodes)) is not None:
        raise GraphError(f"`{path}` names node {wrong}; nodes go from 0 to {num_nodes - 1}; download it again")


def check_finite(path: Path, x: np.ndarray) -> None:
    """Refuses features that are not finite, [N, D]."""
    # minimum and maximum need no array of booleans
    if not np.isfinite((x.min(), x.max())).all():
        row = int(np.argmin(np.isfinite(x).all(axis=1)))
        raise GraphError(
            f"`{path}` has a value in row {row} that is not a finite float32; replace it or download it again"
        )
