from pathlib import Path

import pytest
import torch

from lazygnn.data.folder import load_folder
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.loader import PartLoader
from lazygnn.distributed.shard import open_shard
from lazygnn.loader import ClusterLoader
from tests.distributed.workers import in_threads


def loader_of(folder: Path, ranks: Ranks, per_step: int = 2, halo: str = "frozen", seed: int = 4) -> PartLoader:
    shard = open_shard(folder, ranks)
    around = shard.halo_features() if halo == "features" else None
    return PartLoader(shard, shard.graph, ranks, 2, parts_per_step=per_step, halo=halo, halo_features=around, seed=seed)


def test_all_ranks_take_the_same_steps(prepared: Path) -> None:
    def epochs(ranks: Ranks) -> list[list[list[int]]]:
        loader = loader_of(prepared, ranks)
        return [[[part.number for part in step.parts] for step in loader.steps()] for _ in range(4)]

    (alone,) = in_threads(1, epochs)
    # five parts, two at a time, in another order every epoch
    assert sorted(map(sorted, alone[0])) == [[0, 3], [1, 4], [2]]
    assert len({str(epoch) for epoch in alone}) > 1
    for epoch, *by_rank in zip(alone, *in_threads(3, epochs), strict=True):
        together = [sorted(part for parts in step for part in parts) for step in zip(*by_rank, strict=True)]
        assert together == epoch


@pytest.mark.parametrize("halo", ["frozen", "features", "none"])
def test_batches_are_those_of_the_cluster_loader(prepared: Path, halo: str) -> None:
    whole = load_folder(prepared)
    assert whole.part_ptr is not None
    expected = list(ClusterLoader(whole, whole.part_ptr, 2, halo=halo).sweep())  # type: ignore[arg-type]

    def check(ranks: Ranks) -> int:
        loader, shard = loader_of(prepared, ranks, halo=halo), open_shard(prepared, ranks)
        ids = torch.cat((torch.arange(*shard.bounds[ranks.rank : ranks.rank + 2]), shard.halo))
        batches = list(loader.sweep())
        for part, batch in zip(loader.parts, batches, strict=True):
            other = expected[part.number]
            assert torch.equal(ids[batch.nodes], other.nodes)
            assert batch.num_targets == other.num_targets
            assert torch.equal(batch.x, other.x)  # type: ignore[arg-type]
            assert torch.equal(batch.y, other.y)
            # the loss of a step is that of all its parts: three steps here, five there
            torch.testing.assert_close(batch.weight, other.weight * 3 / 5)
            assert len(batch.adjs) == 2
            assert torch.equal(batch.adjs[0].to_dense(), other.adjs[0].to_dense())
            # one whose features or edges take long to select is kept
            assert (loader.batch(part) is batch) == batch.lasting == (halo != "frozen")
        return len(batches)

    assert sum(in_threads(2, check)) == 5


def test_an_epoch_can_be_resumed(prepared: Path) -> None:
    def run(ranks: Ranks) -> None:
        loader = loader_of(prepared, ranks, per_step=1)
        steps = loader.steps()
        next(steps)
        other = loader_of(prepared, ranks, per_step=1)
        other.load_state_dict(loader.state_dict())
        rest = [[part.number for part in step.parts] for step in steps]
        assert [[part.number for part in step.parts] for step in other.steps()] == rest
        assert other.state_dict() == {"seed": 4, "epoch": 1, "position": 0}
        assert other.upcoming() is None
        assert len(list(other)) == 5

    in_threads(1, run)


def test_a_seed_may_be_large(prepared: Path) -> None:
    def run(ranks: Ranks) -> None:
        steps = list(loader_of(prepared, ranks, per_step=1, seed=2**63 - 1).steps())
        assert sorted(part.number for step in steps for part in step.parts) == list(range(5))

    in_threads(1, run)
