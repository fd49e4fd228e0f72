"""How a command ends when it is asked to: as after an error, so that its temporary folders go with it."""

import signal
from multiprocessing import active_children
from typing import Any


def end_cleanly() -> None:
    """From here on SIGTERM ends this process through its `with` blocks, without its workers' runs being waited for."""
    signal.signal(signal.SIGTERM, _end)


def _end(signum: int, frame: Any) -> None:  # noqa: ARG001
    for worker in active_children():
        worker.kill()
    raise SystemExit(128 + signum)
