"""Runs trials in this process, or in several: workers train, and this process alone writes the journal."""

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.tuning.study import Asked, Outcome, Study
from lazygnn.tuning.trial import Pruned, Report, Subject, run_trial

# gives the next trial, or `None` when no more is to start
Next = Callable[[], Asked | None]


@dataclass(frozen=True)
class Ended:
    """How a trial ended."""

    number: int
    score: float | None
    outcome: Outcome
    reason: str | None = None


def run_here(study: Study, subject: Subject, graph: Graph, following: Next) -> Iterator[int]:
    """Runs one trial after the other in this process; yields the number of each when it has ended."""
    while (asked := following()) is not None:
        number = asked.number

        def report(epoch: int, score: float, number: int = number) -> bool:
            return study.report(number, epoch, score)

        ended = _run(asked, subject, graph, report)
        study.tell(ended.number, ended.score, ended.outcome, ended.reason)
        yield ended.number


def run_in_workers(study: Study, subject: Subject, jobs: int, following: Next) -> Iterator[int]:
    """Runs trials in `jobs` processes; yields the number of each when it has ended.

    A worker whose parent is gone ends after the next epoch that it reports.
    """
    context = get_context("spawn")
    threads = max(torch.get_num_threads() // jobs, 1)
    workers: dict[Any, Any] = {}
    busy: dict[Any, Asked] = {}

    def start() -> Any:
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(there, subject, threads), daemon=True)
        process.start()
        there.close()
        workers[here] = process
        return here

    def hand_out(pipe: Any = None) -> None:
        if (asked := following()) is not None:
            pipe = start() if pipe is None else pipe
            busy[pipe] = asked
            send(pipe, asked)

    def send(pipe: Any, message: object) -> None:
        # a worker that was killed is found when it is read from
        with suppress(BrokenPipeError):
            pipe.send(message)

    try:
        for _ in range(jobs):
            hand_out()
        while busy:
            pipe: Any
            for pipe in wait(list(busy)):
                number = busy[pipe].number
                try:
                    message = pipe.recv()
                except (EOFError, ConnectionResetError):
                    workers.pop(pipe).join()
                    del busy[pipe]
                    study.tell(number, None, "failed", "the process of the trial was killed")
                    yield number
                    hand_out()
                    continue
                if isinstance(message, Ended):
                    del busy[pipe]
                    study.tell(number, message.score, message.outcome, message.reason)
                    yield number
                    hand_out(pipe)
                else:
                    send(pipe, study.report(number, *message))
    finally:
        for pipe, process in workers.items():
            pipe.close()
            process.kill()
            process.join()


def _work(pipe: "Connection", subject: Subject, threads: int) -> None:
    """Runs the trials that a pipe gives, until it closes."""
    # control-C reaches all processes; the parent closes the pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    graph = subject.load()

    def report(epoch: int, score: float) -> bool:
        pipe.send((epoch, score))
        return bool(pipe.recv())

    try:
        while True:
            pipe.send(_run(pipe.recv(), subject, graph, report))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def _run(asked: Asked, subject: Subject, graph: Graph, report: Report) -> Ended:
    try:
        score = run_trial(subject, graph, asked.values, report)
    except Pruned:
        return Ended(asked.number, None, "pruned")
    except (FloatingPointError, ConfigError, MemoryError, torch.OutOfMemoryError) as error:
        return Ended(asked.number, None, "failed", str(error))
    return Ended(asked.number, score, "complete")
