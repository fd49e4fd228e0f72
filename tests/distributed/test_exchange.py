from pathlib import Path

import pytest
import torch
from torch import Tensor

from lazygnn.data.folder import load_folder
from lazygnn.distributed.exchange import Exchange
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.plan import make_plan
from lazygnn.distributed.shard import open_shard
from lazygnn.distributed.traffic import Traffic
from lazygnn.history.codec import Codec
from tests.distributed.workers import in_threads
from tests.helpers import random_rows

VALUES, INPUTS = random_rows(150, 5, 0, torch.float32), random_rows(150, 3, 1, torch.float32)
CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize(("stored", "record"), [(torch.float32, 5 * 4 + 3 * 4), (torch.int8, 5 + 4 + 3 + 4)])
def test_rows_of_all_histories_arrive_together(prepared: Path, size: int, stored: torch.dtype, record: int) -> None:
    num_nodes = load_folder(prepared).num_nodes
    assert num_nodes == len(VALUES)

    def run(ranks: Ranks) -> int:
        shard = open_shard(prepared, ranks)
        num_rows, first = shard.graph.num_nodes, shard.bounds[ranks.rank]
        exchange = Exchange(ranks, num_rows, len(shard.halo), CPU, traffic=shard.traffic)
        codec = Codec(stored, torch.float32)
        stores = [exchange.make_store(codec, rows.shape[1], True) for rows in (VALUES, INPUTS)]
        # without a halo a store has own rows alone
        exchange.make_store(codec, 7, False)
        assert exchange.record_bytes == record
        for store, rows in zip(stores, (VALUES, INPUTS), strict=True):
            store.write(torch.arange(num_rows), rows[first : first + num_rows])
        exchange.launch(shard.matrix.plan)
        for store, rows in zip(stores, (VALUES, INPUTS), strict=True):
            found = store.read(torch.arange(num_rows, num_rows + len(shard.halo)))
            tolerance = 0.0 if stored == torch.float32 else 0.02
            torch.testing.assert_close(found, rows[shard.halo], rtol=0, atol=tolerance)
        return shard.traffic.halo

    sent = in_threads(size, run)
    assert all(count % record == 0 for count in sent)
    assert (sum(sent) > 0) == (size > 1)


def test_rows_stay_as_they_were_until_the_next_exchange(prepared: Path) -> None:
    def run(ranks: Ranks) -> Tensor:
        shard = open_shard(prepared, ranks)
        exchange = Exchange(ranks, shard.graph.num_nodes, len(shard.halo), CPU, traffic=shard.traffic)
        store = exchange.make_store(Codec(torch.float32, torch.float32), 1, True)
        own = torch.arange(shard.graph.num_nodes)
        copies = torch.arange(len(own), len(own) + len(shard.halo))
        store.write(own, torch.ones(len(own), 1))
        exchange.launch(shard.matrix.plan)
        seen = [store.read(copies)]
        # what a step writes is seen after the next exchange, also by another part of the same rank
        store.write(own, torch.full((len(own), 1), 2.0))
        seen.append(store.read(copies))
        exchange.launch(shard.matrix.plan)
        seen.append(store.read(copies))
        return torch.stack([each.mean() for each in seen])

    for seen in in_threads(2, run):
        assert seen.tolist() == [1, 1, 2]


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("stored", [torch.int8, torch.float32])
def test_a_rank_may_receive_one_row_or_none(stored: torch.dtype, count: int) -> None:
    # records of 16 bytes as int8, whose scales do not start at a multiple of four
    values, inputs = VALUES[:4], INPUTS[:4]

    def run(ranks: Ranks) -> None:
        # the second rank reads three rows of the first, and the first `count` rows of the second
        halo = torch.arange(4, 4 + count) if ranks.is_first else torch.arange(3)
        plan = make_plan(ranks, [0, 4, 8], halo, torch.arange(len(halo)))
        exchange = Exchange(ranks, 4, len(halo), CPU, traffic=Traffic())
        codec = Codec(stored, torch.float32)
        stores = [exchange.make_store(codec, rows.shape[1], True) for rows in (values, inputs)]
        for store, rows in zip(stores, (values, inputs), strict=True):
            store.write(torch.arange(4), rows)
        exchange.launch(plan)
        for store, rows in zip(stores, (values, inputs), strict=True):
            copies = store.read(torch.arange(4, 4 + len(halo)))
            torch.testing.assert_close(copies, rows[halo % 4], rtol=0, atol=0.02)

    in_threads(2, run)
