import pytest
import torch

from lazygnn.distributed.store import ShardedStore
from lazygnn.history.codec import Codec
from tests.helpers import random_rows

WIDE = Codec(torch.float32, torch.float32)


def make_store(codec: Codec = WIDE, waits: list[None] | None = None) -> ShardedStore:
    return ShardedStore(codec, 2, 3, 2, torch.device("cpu"), lambda: None if waits is None else waits.append(None))


def test_own_rows_come_before_copies() -> None:
    waits: list[None] = []
    store = make_store(waits=waits)
    own, copies = random_rows(3, 2, 0, torch.float32), random_rows(2, 2, 1, torch.float32)
    store.write(torch.arange(3), own)
    store.receive(torch.tensor([1, 0]), {"rows": copies.flip(0)}, WIDE)
    assert torch.equal(store.read(torch.tensor([4, 0, 3])), torch.stack((copies[1], own[0], copies[0])))
    located = store.locate(torch.tensor([4]))
    assert torch.equal(located.table[located.rows], copies[1:])
    # both have waited for rows under way
    assert len(waits) == 2
    # a checkpoint has own rows alone
    assert store.num_rows == 3
    assert torch.equal(store.state()["rows"], own)


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("wire", [torch.float32, torch.bfloat16, torch.int8])
def test_a_row_survives_the_way(stored: torch.dtype, wire: torch.dtype) -> None:
    store, codec = make_store(Codec(stored, torch.float32)), Codec(wire, torch.float32)
    own = random_rows(3, 2, 0, torch.float32)
    store.write(torch.arange(3), own)
    store.receive(torch.arange(2), store.encode(torch.tensor([2, 0]), codec), codec)
    found = store.read(torch.tensor([3, 4]))
    # at most two roundings to 1/254 of the largest entry, or to 1/256 of an entry
    torch.testing.assert_close(found, own[[2, 0]], rtol=0, atol=2 * float(own.abs().max()) / 250)
