"""Processes of the command line that start at once, because the library is imported once for all of them."""

import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

# imported by the process that all others are copies of; what a training imports late is listed too
IMPORTED = ["tests.processes", "lazygnn.cli", "torch._dynamo", "matplotlib.backends.backend_agg"]


def context() -> ForkServerContext:
    """Returns a way to start processes that have imported the library."""
    made = get_context("forkserver")
    made.set_forkserver_preload(IMPORTED)
    return made


def start_command(arguments: Sequence[str], out: Path, environment: Mapping[str, str]) -> ForkServerProcess:
    """Starts `lazygnn` with these arguments in a process of its own, with stdout and stderr in a file."""
    process = context().Process(target=_run, args=(list(arguments), str(out), dict(environment)))
    process.start()
    return process


def _run(arguments: list[str], out: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["lazygnn", *arguments]
    from lazygnn.cli import main

    main()
