from pathlib import Path

import pytest
import torch

from lazygnn.distributed.group import Ranks
from lazygnn.distributed.shard import open_shard
from lazygnn.ops import own_rows
from tests.distributed.workers import in_threads
from tests.helpers import random_rows


@pytest.mark.parametrize("size", [1, 3])
def test_rows_around_parts_come_from_their_owners(prepared: Path, size: int) -> None:
    x = random_rows(150, 4, 0)

    def check(ranks: Ranks) -> int:
        shard = open_shard(prepared, ranks)
        assert torch.equal(shard.matrix.halo_rows(own_rows(shard.matrix, x)), x[shard.halo])
        return shard.traffic.evaluated

    sent = in_threads(size, check)
    # rows that stay in a rank are not counted
    assert (sum(sent) > 0) == (size > 1)


def test_a_matrix_moves_with_its_parts(prepared: Path) -> None:
    (matrix,) = in_threads(1, lambda ranks: open_shard(prepared, ranks).matrix)
    wide = matrix.to(torch.float64)
    assert wide.value.dtype == torch.float64
    assert all(part.adj.value.dtype == torch.float64 for part in wide.parts)
    assert matrix.to("cpu") is matrix
    assert (matrix.num_rows, matrix.num_cols) == (150, 150)
