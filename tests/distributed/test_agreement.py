import shutil
from pathlib import Path

import numpy as np
import pytest

from lazygnn.distributed import agreement
from lazygnn.distributed.agreement import check_agreement, folder_digest
from lazygnn.distributed.group import Ranks
from lazygnn.errors import GraphError, RankError
from lazygnn.methods import resolve
from tests.distributed.workers import in_threads

CONFIG = resolve("lazygnn", "mine", {"num_parts": 5})


def test_ranks_with_the_same_graph_agree(prepared: Path) -> None:
    digests = in_threads(3, lambda ranks: check_agreement(ranks, CONFIG, prepared))
    assert digests == [folder_digest(prepared)] * 3


def test_a_rank_with_another_graph_is_named(prepared: Path, tmp_path: Path) -> None:
    other = tmp_path / "graph"
    shutil.copytree(prepared, other)
    labels = np.load(other / "y.npy")
    labels[7] = (labels[7] + 1) % 3
    np.save(other / "y.npy", labels)

    def check(ranks: Ranks) -> str:
        # all ranks see the graph under one name
        return check_agreement(ranks, CONFIG, prepared if ranks.rank < 2 else other)

    with pytest.raises(RankError, match="rank 2 has another content of the graph"):
        in_threads(3, check)


def test_a_rank_with_another_configuration_is_named(prepared: Path) -> None:
    def check(ranks: Ranks) -> str:
        return check_agreement(ranks, CONFIG.model_copy(update={"seed": ranks.rank}), prepared)

    with pytest.raises(RankError, match="rank 1 has another configuration"):
        in_threads(2, check)


def test_a_rank_with_another_version_is_named(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = iter(["1.0", "1.1"])
    monkeypatch.setattr(agreement, "_versions", lambda: {"version of lazygnn": next(versions)})
    with pytest.raises(RankError, match=r"another version of lazygnn: 1\.\d instead of 1\.\d"):
        in_threads(2, lambda ranks: check_agreement(ranks, CONFIG, prepared))


def test_a_rank_without_the_graph_is_named(prepared: Path, tmp_path: Path) -> None:
    def check(ranks: Ranks) -> str:
        return check_agreement(ranks, CONFIG, prepared if ranks.rank == 0 else tmp_path / "missing")

    with pytest.raises(RankError, match=r"rank 1: .*missing"):
        in_threads(2, check)
    with pytest.raises(GraphError, match="missing"):
        check_agreement(Ranks(), CONFIG, tmp_path / "missing")
