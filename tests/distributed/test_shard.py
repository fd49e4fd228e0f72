from pathlib import Path

import pytest
import torch

from lazygnn.data.folder import load_folder, save_folder
from lazygnn.data.synthetic import block_graph
from lazygnn.distributed import shard as module
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.shard import open_shard
from lazygnn.errors import ConfigError, GraphError
from tests.distributed.workers import in_threads


@pytest.mark.parametrize("entries", [None, 7], ids=["at once", "in small blocks"])
def test_the_parts_of_all_ranks_are_the_matrix(
    prepared: Path, entries: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if entries is not None:
        monkeypatch.setattr(module, "_ENTRIES", entries)
    whole = load_folder(prepared)
    shards = in_threads(3, lambda ranks: open_shard(prepared, ranks))
    dense = torch.zeros(whole.adj.shape)
    for rank, shard in enumerate(shards):
        first = shard.bounds[rank]
        for part in shard.matrix.parts:
            # the nodes of a part come first, then those around it
            columns = torch.cat((torch.arange(first + part.start, first + part.stop), shard.halo[part.slots]))
            rows = torch.arange(first + part.start, first + part.stop)
            dense[rows[:, None], columns] = part.adj.to_dense()
    assert torch.equal(dense, whole.adj.to_dense())
    assert [part.number for shard in shards for part in shard.matrix.parts] == list(range(5))


def test_a_rank_has_its_rows_and_the_numbers_of_the_whole_graph(prepared: Path) -> None:
    whole = load_folder(prepared)
    shards = in_threads(2, lambda ranks: open_shard(prepared, ranks))
    for name in ("x", "y", "degree"):
        assert torch.equal(torch.cat([getattr(shard.graph, name) for shard in shards]), getattr(whole, name))
    for shard in shards:
        assert shard.graph.num_nodes < whole.num_nodes
        assert shard.graph.num_train == whole.num_train
        assert torch.equal(shard.graph.training_labels(), whole.training_labels())
        around = shard.halo_features()
        assert isinstance(around, torch.Tensor)
        assert isinstance(whole.x, torch.Tensor)
        assert torch.equal(around, whole.x[shard.halo])
        # it survives a change of type
        assert shard.graph.to(torch.float64).num_train == whole.num_train


def test_more_ranks_than_parts_are_refused(prepared: Path) -> None:
    with pytest.raises(ConfigError, match="6 ranks share 5 parts"):
        open_shard(prepared, Ranks(0, 6))


def test_a_graph_that_was_not_prepared_is_refused(tmp_path: Path) -> None:
    save_folder(block_graph(30, 3, degree=4, in_channels=2, num_classes=3), tmp_path / "graph")
    with pytest.raises(GraphError, match="lazygnn prepare GRAPH --out"):
        open_shard(tmp_path / "graph", Ranks())


def test_a_method_without_edges_reads_none(prepared: Path) -> None:
    shard = open_shard(prepared, Ranks(), with_edges=False)
    assert len(shard.halo) == 0
    assert all(len(part.adj.col) == 0 for part in shard.matrix.parts)
