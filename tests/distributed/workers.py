"""Ranks as processes and as threads of a test."""

import socket
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import FileStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore

from lazygnn.distributed.group import Ranks
from tests.processes import context, start_command

T = TypeVar("T")


class _Meeting:
    """Where threads lay down values for each other."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size, timeout=300)
        self.values: list[Any] = [None] * size


class ThreadRanks(Ranks):
    """Ranks that are threads of one process; random numbers are shared by all of them."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        super().__init__(rank, len(meeting.values))
        self.meeting = meeting

    def gather(self, value: T) -> list[T]:
        self.meeting.values[self.rank] = value
        self.meeting.barrier.wait()
        found = list(self.meeting.values)
        self.meeting.barrier.wait()
        return found

    def all_to_all(
        self, out: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]
    ) -> Callable[[], object]:
        blocks = self.gather(rows.split(list(sent)))
        mine = [theirs[self.rank] for theirs in blocks]
        assert [len(block) for block in mine] == list(received)
        out.copy_(torch.cat([block.reshape(len(block), *out.shape[1:]) for block in mine]))
        return lambda: None

    def sum(self, tensor: Tensor) -> Tensor:
        total = torch.stack(self.gather(tensor.clone())).sum(0)
        return tensor.copy_(total)

    def from_first(self, value: T) -> T:
        return self.gather(value)[0]


def in_threads(size: int, function: Callable[[Ranks], T]) -> list[T]:
    """Runs a function on several ranks and returns the result of each; an error of one is raised."""
    meeting, results, errors = _Meeting(size), [None] * size, list[BaseException]()

    def run(rank: int) -> None:
        try:
            results[rank] = function(ThreadRanks(rank, meeting))  # type: ignore[call-overload]
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        if not isinstance(error, threading.BrokenBarrierError):
            raise error
    assert not errors
    return results  # type: ignore[return-value]


def in_processes(folder: Path, sizes: Sequence[int], function: Callable[[Ranks, Path, int], object]) -> None:
    """Runs a function in several rounds, each on a number of ranks, in the same processes.

    The function receives the ranks, the folder and the round. A rank saves its result as `<folder>/<round>-<rank>.pt`.
    """
    processes = [
        context().Process(target=_run, args=(rank, str(folder), list(sizes), function)) for rank in range(max(sizes))
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def _run(rank: int, folder: str, sizes: list[int], function: Callable[[Ranks, Path, int], object]) -> None:
    torch.set_num_threads(1)
    for number, size in enumerate(sizes):
        if rank >= size:
            continue
        store = FileStore(str(Path(folder) / f"store-{number}"), size)
        wait = timedelta(seconds=300)
        if size > 1:
            group = PrefixStore("group", store)
            dist.init_process_group("gloo", store=group, rank=rank, world_size=size, timeout=wait)
        ranks = Ranks(rank, size, store if size > 1 else None, 300)
        torch.save(function(ranks, Path(folder), number), Path(folder) / f"{number}-{rank}.pt")
        ranks.close()


def run_command(size: int, arguments: Sequence[str], folder: Path, **environment: str) -> list[str]:
    """Runs `lazygnn` on several ranks, as `torchrun` does, and returns what each of them has written."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    sizes = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **sizes, **environment}
    files = [folder / f"rank-{rank}.txt" for rank in range(size)]
    started = [
        start_command(arguments, file, shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
        for rank, file in enumerate(files)
    ]
    for process in started:
        process.join(300)
    return [f"{file.read_text()}exit {process.exitcode}" for file, process in zip(files, started, strict=True)]
