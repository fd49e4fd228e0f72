"""Memory that is returned to the system."""

import os
from pathlib import Path

import pytest
import torch

from lazygnn.distributed.memory import drop_pages, return_free_memory

told = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell what is in memory")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@told
def test_memory_that_the_allocator_holds_is_returned() -> None:
    if not return_free_memory():
        pytest.skip("the C library cannot return it")
    # small enough to be in the heap, which shrinks from its end alone
    blocks = [bytearray(60_000) for _ in range(2000)]
    last = blocks.pop()
    blocks.clear()
    before = resident()
    assert return_free_memory()
    assert before - resident() > 60e6
    assert len(last) == 60_000


@told
def test_pages_of_a_tensor_are_returned_and_the_rows_before_it_stay() -> None:
    table = torch.ones(100_003, 77)
    before = resident()
    if not drop_pages(table[50_001:]):
        pytest.skip("the system cannot return them")
    assert before - resident() > 0.9 * 50_000 * 77 * 4
    assert torch.equal(table[:50_001], torch.ones(50_001, 77))
    table[50_001:] = 2
    assert torch.equal(table[50_001:], torch.full((50_002, 77), 2.0))


def test_what_has_no_page_of_its_own_is_left_alone() -> None:
    table = torch.ones(4, 5)
    assert not drop_pages(table)
    assert not drop_pages(table[:0])
    # its rows lie between others
    wide = torch.ones(10_000, 100)
    assert not drop_pages(wide[:, :50])
    assert torch.equal(table, torch.ones(4, 5))
    assert torch.equal(wide, torch.ones(10_000, 100))
