"""A switch between the library's kernels and plain PyTorch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH = "LAZYGNN_KERNELS"


@contextmanager
def kernels(*, plain: bool) -> Iterator[None]:
    """Uses the sparse products of plain PyTorch (cuSPARSE, MKL) within the block, or the library's own choice."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "reference" if plain else "auto"
    try:
        yield
    finally:
        os.environ.pop(_SWITCH)
        if before is not None:
            os.environ[_SWITCH] = before
