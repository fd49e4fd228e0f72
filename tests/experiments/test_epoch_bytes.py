"""Rows times bytes of a row are what ranks count at the collectives."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from common.summary import load_summary
from experiments import epoch_bytes
from experiments.epoch_bytes import config_of
from lazygnn.commands.sharing import for_ranks
from lazygnn.data.folder import map_folder, save_folder
from lazygnn.data.synthetic import block_graph
from lazygnn.distributed.building import build_trainer, share_of
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.traffic import summarize
from lazygnn.errors import GraphError
from lazygnn.partitioning import partition
from tests.distributed.workers import in_processes

RANKS, OUTPUTS = 3, 5
SMALL = {"epochs": 2, "eval_every": 2, "hidden_channels": 8}
# in float32, narrower, and with several rows for a node
COUNTED = ("lazygnn", "lazygnn, halo gradients", "lazygnn-deep, views of 16, int8")


def train_ranks(ranks: Ranks, folder: Path, number: int) -> dict[str, float]:
    """Trains a method as a run does, and returns what all ranks have counted."""
    config = for_ranks(config_of(COUNTED[number], folder / "graph", **SMALL), map_folder(folder / "graph"), ranks.size)
    shard = share_of(config, folder / "graph", ranks)
    trainer = build_trainer(config, shard, ranks, torch.device("cpu"), folder / f"scratch-{ranks.rank}")
    trainer.run()
    return summarize(ranks.gather(trainer.exchange.traffic))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with a graph of one part for every rank."""
    made = tmp_path_factory.mktemp("bytes")
    graph = block_graph(90, 3, degree=6, in_channels=4, num_classes=OUTPUTS)
    parts = partition(graph, RANKS, method="random")
    save_folder(replace(graph.permute(parts.order), part_ptr=parts.ptr), made / "graph")
    return made


def test_the_product_is_what_runs_count(folder: Path) -> None:
    in_processes(folder, [RANKS] * len(COUNTED), train_ranks)
    rows = epoch_bytes.rows_of_an_exchange(folder / "graph")
    for number, label in enumerate(COUNTED):
        counted = torch.load(folder / f"{number}-0.pt", weights_only=False)
        size = epoch_bytes.record_bytes(config_of(label, folder / "graph", **SMALL), 4, OUTPUTS)
        assert counted["halo_bytes_per_epoch"] == rows * size > 0, label


def test_a_table_has_a_row_for_every_method(folder: Path) -> None:
    summary = epoch_bytes.main(folder / "graph")
    found = {row.label: [cell["value"] for cell in row.cells if cell is not None] for row in summary.rows}
    rows = epoch_bytes.rows_of_an_exchange(folder / "graph")
    assert found["lazygnn"] == pytest.approx([rows, 20, rows * 20e-6, 20 / 400, 20 / 2048])
    assert found["lazygnn, int8"][1] == 5 + 4
    assert found["lazygnn, halo gradients"][1] == 40
    assert found["APPNP, 10 exact steps"][1:] == pytest.approx([400, rows * 400e-6, 1, 400 / 2048])
    assert found["PipeGCN, 3 x 128"][4] == 1
    assert found["BNS-GCN, p = 0.1"][4] == pytest.approx(0.1)
    # two rows for a block and one for the model beside the stack, each with a scale
    assert (found["lazygnn-deep, views of 16, int8"][1] - (5 + 4)) % (2 * (16 + 4)) == 0


def test_a_graph_without_parts_is_refused(tmp_path: Path) -> None:
    save_folder(block_graph(60, 3, degree=4, in_channels=2, num_classes=2), tmp_path / "graph")
    with pytest.raises(GraphError, match=r"is not sorted by a partition; write it with `lazygnn prepare"):
        epoch_bytes.main(tmp_path / "graph")


def test_the_published_bytes_are_a_tenth_of_exact_steps_and_half_of_pipegcn() -> None:
    summary = load_summary("epoch-bytes")
    titles = [column.title for column in summary.columns]
    appnp, pipegcn = titles.index("share of APPNP"), titles.index("share of PipeGCN")
    found = {row.label: [cell["value"] for cell in row.cells if cell is not None] for row in summary.rows}
    for label in ("lazygnn", "lazygnn, halo gradients", "lazygnn-deep, views of 16, int8"):
        assert found[label][appnp] <= 0.1
        assert found[label][pipegcn] <= 0.5
