import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import Store

from lazygnn.distributed import group
from lazygnn.distributed.group import Ranks, join, meet
from lazygnn.errors import ConfigError, RankError
from tests.distributed.workers import in_threads

LOST = "[/src/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:54951: Connection reset by peer. This is typical."


def test_a_single_rank_needs_no_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    ranks = join("cpu", 10)
    assert (ranks.rank, ranks.size, ranks.is_first) == (0, 1, True)
    rows, out = torch.arange(6).view(3, 2), torch.zeros(3, 2, dtype=torch.long)
    ranks.all_to_all(out, rows, [3], [3])()
    assert torch.equal(out, rows)
    assert ranks.gather(7) == [7]
    assert ranks.from_first("a") == "a"
    assert ranks.first_alone("work", lambda: 3) == 3
    found = ranks.gather_rows(rows)
    assert found is not None
    assert torch.equal(found, rows)
    with pytest.raises(ConfigError, match="wrong"), ranks.agreeing():
        raise ConfigError("wrong")
    with pytest.raises(ConfigError, match="wrong"), ranks.reporting():
        raise ConfigError("wrong")
    ranks.close()


@pytest.mark.parametrize(
    ("gpus", "here", "everywhere", "expected"),
    [
        (0, "2", "2", "gloo"),
        (1, "1", "1", "cpu:gloo,cuda:nccl"),
        (4, "4", "8", "cpu:gloo,cuda:nccl"),
        (1, "4", "4", "gloo"),
        (1, None, "2", "gloo"),
        (2, None, "2", "cpu:gloo,cuda:nccl"),
    ],
)
def test_ranks_that_share_a_gpu_do_not_talk_through_nccl(
    monkeypatch: pytest.MonkeyPatch, gpus: int, here: str | None, everywhere: str, expected: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", everywhere)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if here is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
    assert group.backend_for(gpus) == expected


def _met(store: Store, rank: int, size: int, seconds: float = 60) -> str:
    return meet(store, rank, size, timedelta(seconds=seconds))


def test_ranks_that_start_again_do_not_meet_those_that_have_ended() -> None:
    store = HashStore()
    with ThreadPoolExecutor(3) as pool:
        first = {future.result() for future in [pool.submit(_met, store, rank, 3) for rank in range(3)]}
        # the others come before the first one, and find what is left of the last time
        late = [pool.submit(_met, store, rank, 3) for rank in (1, 2)]
        time.sleep(0.2)
        assert not any(future.done() for future in late)
        second = {_met(store, 0, 3), *(future.result() for future in late)}
    assert len(first) == len(second) == 1
    assert first != second


def test_a_first_rank_that_does_not_come_is_an_error_in_time() -> None:
    store = HashStore()
    with ThreadPoolExecutor(2) as pool:
        _ = [future.result() for future in [pool.submit(_met, store, rank, 2) for rank in range(2)]]
    with pytest.raises(RuntimeError, match="first rank"):
        _met(store, 1, 2, 0.1)


def test_rows_of_all_ranks_are_gathered_on_the_first() -> None:
    found = in_threads(3, lambda ranks: ranks.gather_rows(torch.full((ranks.rank, 2), float(ranks.rank))))
    assert found[0] is not None
    assert found[0].tolist() == [[1, 1], [2, 2], [2, 2]]
    assert found[1] is None
    assert found[2] is None


@pytest.mark.parametrize(("failing", "message"), [({1}, "rank 1: wrong"), ({0, 1, 2}, "wrong")])
def test_an_error_of_one_rank_is_one_of_all_and_told_once(failing: set[int], message: str) -> None:
    def run(ranks: Ranks) -> tuple[str, bool]:
        try:
            with ranks.agreeing():
                if ranks.rank in failing:
                    raise ConfigError("wrong")
        except RankError as error:
            return str(error), error.shown
        return "", False

    assert in_threads(3, run) == [(message, True), (message, False), (message, False)]


def test_a_rank_that_does_not_answer_is_named_by_one_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "_ROLL_CALL", 2)
    store, found = HashStore(), dict[int, RankError]()

    def lose(rank: int) -> None:
        try:
            with Ranks(rank, 3, store, timeout=20).naming():
                raise RuntimeError(LOST)
        except RankError as error:
            found[rank] = error

    threads = [threading.Thread(target=lose, args=(rank,)) for rank in (0, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = (
        "rank 1 of 3 ended or did not answer within 20 seconds (Read error [127.0.0.1]:54951: Connection reset by peer)"
    )
    assert str(found[0]).startswith(text)
    assert "--resume RUN" in str(found[0])
    assert [found[rank].shown for rank in (0, 2)] == [True, False]


def test_a_rank_that_fails_tells_the_others_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "_ROLL_CALL", 600)
    store = HashStore()
    with pytest.raises(RankError, match="rank 1: the disk is full") as failed, Ranks(1, 2, store).reporting():
        raise OSError("the disk is full")
    assert failed.value.shown
    started = time.monotonic()
    with pytest.raises(RankError, match="rank 1: the disk is full") as lost, Ranks(0, 2, store).naming():
        raise RuntimeError(LOST)
    assert not lost.value.shown
    # it does not wait for an answer that will not come
    assert time.monotonic() - started < 120


def test_the_same_error_of_all_ranks_is_told_by_one() -> None:
    store, shown = HashStore(), []
    for rank in range(3):
        with pytest.raises(RankError) as failed, Ranks(rank, 3, store).reporting():
            raise ConfigError("the loss is not finite")
        shown.append(failed.value.shown)
    assert shown == [True, False, False]


def test_a_bug_is_not_hidden() -> None:
    store = HashStore()
    with pytest.raises(ZeroDivisionError), Ranks(1, 2, store).reporting():
        _ = 1 / 0
    assert store.get("failed/1") == b"rank 1: ZeroDivisionError"
