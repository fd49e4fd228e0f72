"""Which kernels the library uses: its own choice, or plain PyTorch for a while."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_SWITCH = "LAZYGNN_KERNELS"


@contextmanager
def kernels(*, plain: bool) -> Iterator[None]:
    """Sparse products of plain PyTorch (cuSPARSE, MKL) if asked for, or else what the library chooses by itself."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "reference" if plain else "auto"
    try:
        yield
    finally:
        os.environ.pop(_SWITCH)
        if before is not None:
            os.environ[_SWITCH] = before
