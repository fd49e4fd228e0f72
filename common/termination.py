"""Termination by SIGTERM that cleans up as after an error."""

import signal
from multiprocessing import active_children
from typing import Any


def exit_on_sigterm() -> None:
    """Makes SIGTERM kill the workers and raise `SystemExit`, so that `with` blocks remove their temporary folders."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(signum: int, frame: Any) -> None:  # noqa: ARG001
    for worker in active_children():
        worker.kill()
    raise SystemExit(128 + signum)
