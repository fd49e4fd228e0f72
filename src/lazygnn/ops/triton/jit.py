"""A typed `triton.jit`."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import triton


class Kernel(Protocol):
    """A function compiled by `triton.jit`, launched on a grid or called by another kernel."""

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Returns a function that launches the kernel on the grid."""

    def __call__(self, *args: Any) -> Any:
        """Inlines the kernel into the kernel that calls it."""


def jit(function: Callable[..., Any], *, unspecialized: Sequence[str] = ()) -> Kernel:
    """Compiles a function with `triton.jit`; integers in `unspecialized` do not cause variants of the kernel."""
    kernel: Kernel = triton.jit(function, do_not_specialize=unspecialized)
    return kernel
