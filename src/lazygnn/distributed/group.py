"""The ranks of a training: who they are, how they talk to each other, and what happens if one of them fails."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NoReturn, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from lazygnn.distributed import is_launched
from lazygnn.errors import CheckpointError, ConfigError, GraphError, RankError

T = TypeVar("T")

# errors of a user, told in one line
KNOWN = (GraphError, ConfigError, CheckpointError, OSError)
# seconds within which ranks that are alive say so after a failure
_ROLL_CALL = 5.0
# ranks may start so many seconds apart, since imports from a cold disk take long
_START = 300.0
# seconds between two checks for the first rank
_POLL = 0.02
# what one rank does alone, such as a partition, takes as long as it takes
_ALONE = timedelta(days=7)


class Ranks:
    """All ranks, seen from one of them. A single rank needs no process group.

    Args:
        rank: The number of this rank.
        size: The number of ranks.
        store: Where ranks leave messages that do not need the others to answer; `None` for a single rank.
        timeout: Seconds after which a rank that does not answer is an error.
    """

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None, timeout: float = 0.0) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self._store = store
        self._is_lost = False

    @property
    def is_first(self) -> bool:
        """Returns whether this rank writes files and talks to the user."""
        return self.rank == 0

    def all_to_all(
        self, out: Tensor, rows: Tensor, received: Sequence[int], sent: Sequence[int]
    ) -> Callable[[], object]:
        """Starts to send rows to every rank and returns a function that waits until `out` has those of the others.

        Args:
            out: Where rows are received, sorted by the rank that sends them.
            rows: The rows to send, sorted by the rank that receives them; they must not change before the wait.
            received: The number of rows from each rank.
            sent: The number of rows to each rank.
        """
        if self.size == 1:
            out.copy_(rows)
            return lambda: None
        with self.naming():
            work = dist.all_to_all_single(out, rows, list(received), list(sent), async_op=True)

        def wait() -> None:
            with self.naming():
                work.wait()

        return wait

    def sum(self, tensor: Tensor) -> Tensor:
        """Adds the tensors of all ranks, in place."""
        if self.size > 1:
            with self.naming():
                dist.all_reduce(tensor)
        return tensor

    def gather(self, value: T) -> list[T]:
        """Returns the values of all ranks on all of them."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self.naming():
            dist.all_gather_object(values, value)
        return values

    def gather_rows(self, rows: Tensor) -> Tensor | None:
        """Returns the rows of all ranks on the first rank, in host memory, and `None` on the others."""
        rows = rows.detach().cpu().contiguous()
        counts = self.gather(len(rows))
        out = rows.new_empty((sum(counts), *rows.shape[1:])) if self.is_first else rows[:0]
        sent = [len(rows), *[0] * (self.size - 1)]
        received = counts if self.is_first else [0] * self.size
        self.all_to_all(_bytes(out), _bytes(rows), received, sent)()
        return out if self.is_first else None

    def from_first(self, value: T) -> T:
        """Returns the value of the first rank."""
        if self.size == 1:
            return value
        values = [value]
        with self.naming():
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def first_alone(self, name: str, action: Callable[[], T]) -> T:
        """Runs an action on the first rank while the others wait, however long it takes; returns its result.

        Args:
            name: Names the action, once in a training.
            action: An error in it is an error of all ranks.
        """
        found: list[T] = []
        with self.agreeing():
            if self.is_first:
                try:
                    found.append(action())
                finally:
                    if self._store is not None:
                        self._store.set(f"alone/{name}", "done")
            elif self._store is not None:
                with self.naming():
                    self._store.wait([f"alone/{name}"], _ALONE)
        return self.from_first(found[0] if found else None)  # type: ignore[return-value]

    @contextmanager
    def agreeing(self) -> Iterator[None]:
        """Lets all ranks end the block together: if one of them fails with a known error, all fail with that error."""
        own: Exception | None = None
        try:
            yield
        except KNOWN as error:
            own = error
        if self.size == 1:
            if own is not None:
                raise own
            return
        errors = self.gather(None if own is None else str(own))
        failed = next((rank for rank, error in enumerate(errors) if error is not None), None)
        if failed is not None:
            # the first rank acts for all, so that its errors are told like those of a single process
            name = f"rank {failed}: " if failed > 0 else ""
            raise RankError(f"{name}{errors[failed]}", shown=self.is_first) from own

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Tells the other ranks of an error in the block, which they would only know as a lost connection."""
        try:
            yield
        except RankError:
            raise
        except KNOWN as error:
            if self._store is None:
                raise
            message = f"rank {self.rank}: {error}"
            self._post(message)
            raise RankError(message, shown=self._is_first_to_tell(str(error))) from error
        except BaseException as error:
            self._post(f"rank {self.rank}: {type(error).__name__}")
            raise

    def close(self) -> None:
        """Ends the process group, if there is one; after a lost connection the end of the process does so."""
        if self.size > 1 and dist.is_initialized() and not self._is_lost:
            dist.destroy_process_group()

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Turns the failure of a collective into an error that names the rank that caused it."""
        try:
            yield
        except RuntimeError as error:
            if self._store is None:
                raise
            self._blame(error)

    def _blame(self, error: RuntimeError) -> NoReturn:
        self._is_lost, cause = True, _cause(error)
        try:
            silent, message = self._ask(self._call_roll)
        except (RuntimeError, TimeoutError):
            raise RankError(f"rank {self.rank} lost the connection to the first host ({cause}); {_REMEDY}") from error
        if message is not None:
            # the rank that has failed tells the user
            raise RankError(message, shown=False) from error
        names = ", ".join(map(str, silent)) or "unknown"
        raise RankError(
            f"{'ranks' if len(silent) > 1 else 'rank'} {names} of {self.size} ended or did not answer within "
            f"{self.timeout:g} seconds ({cause}); {_REMEDY}",
            shown=self.rank == min(rank for rank in range(self.size) if rank not in silent),
        ) from error

    def _call_roll(self, store: Store) -> tuple[list[int], str | None]:
        """Returns the ranks that are silent after a failure, and what a rank has said of an error of its own."""
        store.set(f"alive/{self.rank}", "yes")
        deadline = time.monotonic() + _ROLL_CALL
        silent = list(range(self.size))
        while silent and time.monotonic() < deadline:
            for rank in silent:
                if store.check([f"failed/{rank}"]):
                    return silent, store.get(f"failed/{rank}").decode()
            silent = [rank for rank in silent if not store.check([f"alive/{rank}"])]
            time.sleep(0.05)
        return silent, None

    def _post(self, message: str) -> None:
        if self._store is not None:
            with suppress(RuntimeError, TimeoutError):
                self._ask(lambda store: store.set(f"failed/{self.rank}", message))

    def _is_first_to_tell(self, text: str) -> bool:
        """Returns whether no other rank tells the same error."""

        def ask(store: Store) -> bool:
            return store.compare_set("told", "", text).decode() != text or store.add("telling", 1) == 1

        try:
            return self._ask(ask)
        except (RuntimeError, TimeoutError):
            return True

    def _ask(self, question: Callable[[Store], T]) -> T:
        """Asks the store in a thread, since a store on a host that is cut off does not answer at all."""
        assert self._store is not None
        store, answer, failure = self._store, list[T](), list[RuntimeError]()

        def run() -> None:
            try:
                answer.append(question(store))
            except RuntimeError as error:
                failure.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(_ROLL_CALL + 5)
        if failure:
            raise failure[0]
        if not answer:
            raise TimeoutError
        return answer[0]


_REMEDY = "find out why it ended, then resume the run with `torchrun ... -m lazygnn train --resume RUN`"


def join(device: str, timeout: float) -> Ranks:
    """Joins the ranks that `torchrun` has started; without it, this process is the only rank.

    Ranks talk through Gloo, and through NCCL between GPUs if every rank of a host has its own.

    Args:
        device: `auto`, `cpu` or `cuda`.
        timeout: Seconds after which a rank that does not answer is an error.
    """
    if not is_launched():
        return Ranks()
    gpus = torch.cuda.device_count() if device != "cpu" else 0
    if gpus > 0:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
    backend = backend_for(gpus)
    wait, start = timedelta(seconds=timeout), timedelta(seconds=max(timeout, _START))
    try:
        store, rank, size = next(iter(rendezvous("env://", timeout=start)))
        store = PrefixStore(meet(store, rank, size, start), store)
        store.set_timeout(wait)
        dist.init_process_group(backend, store=PrefixStore("group", store), rank=rank, world_size=size, timeout=wait)
    except RuntimeError as error:
        raise RankError(
            f"rank {os.environ['RANK']} could not join the {os.environ['WORLD_SIZE']} ranks within "
            f"{start.total_seconds():g} seconds ({_cause(error)}); start all of them, with the same `--nnodes` and "
            "`--rdzv-endpoint`"
        ) from error
    return Ranks(rank, size, PrefixStore("lazygnn", store), timeout)


def meet(store: Store, rank: int, size: int, timeout: timedelta) -> str:
    """Waits for all ranks and returns a name that they share and no earlier start of them has used.

    `torchrun` keeps its store when it starts ranks again, so it may hold what ranks that have ended left in it. The
    first rank offers a new name. Each other rank answers the offer that it finds with a name of its own, and takes the
    offer when its answer is confirmed. An old offer is never confirmed, since the answer is new.

    Raises:
        RuntimeError: A rank did not come in time.
    """
    own = uuid4().hex
    others = range(1, size)
    if rank == 0:
        store.set("offer", own)
        store.wait([f"{own}/answer/{other}" for other in others], timeout)
        for other in others:
            store.set(f"{own}/confirmed/{store.get(f'{own}/answer/{other}').decode()}", "yes")
        return own
    answered, deadline = "", time.monotonic() + timeout.total_seconds()
    while not (answered and store.check([f"{answered}/confirmed/{own}"])):
        if time.monotonic() > deadline:
            raise RuntimeError("timed out waiting for the first rank")
        if store.check(["offer"]) and (offer := store.get("offer").decode()) != answered:
            store.set(f"{offer}/answer/{rank}", own)
            answered = offer
        time.sleep(_POLL)
    return answered


def backend_for(gpus: int) -> str:
    """Returns the engines of a rank on a host with so many GPUs: NCCL cannot serve two ranks on one."""
    # a starter that does not count the ranks of a host may have put all of them there
    here = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    return "cpu:gloo,cuda:nccl" if here <= gpus else "gloo"


def _cause(error: RuntimeError) -> str:
    """Returns what a backend says of a failure, without its source file and its advice."""
    lines = str(error).strip().splitlines()
    text = re.sub(r"^\[[^]]*\.(cc|cpp|h):\d+\] *", "", lines[0] if lines else type(error).__name__)
    return text.partition(". ")[0]


def _bytes(rows: Tensor) -> Tensor:
    """Returns rows as bytes, since not every backend knows every type."""
    return rows.reshape(len(rows), -1).view(torch.uint8) if rows.numel() else rows.new_empty(0, 0, dtype=torch.uint8)
