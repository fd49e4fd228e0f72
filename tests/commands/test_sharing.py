from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lazygnn.commands.sharing import ORDER, check_values, for_ranks, parts_folder, resolve_for_ranks
from lazygnn.data.folder import load_folder, save_folder
from lazygnn.data.synthetic import block_graph
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import resolve
from lazygnn.methods.options import ClusterOptions
from lazygnn.partitioning import partition
from lazygnn.run.folder import Run

GRAPH = block_graph(60, 3, degree=4, in_channels=4, num_classes=3)


def prepared(num_parts: int) -> Graph:
    parts = partition(GRAPH, num_parts)
    return replace(GRAPH.permute(parts.order), part_ptr=parts.ptr)


@pytest.mark.parametrize(
    ("graph", "values", "ranks", "expected"),
    [
        (GRAPH, {}, 3, (3, 3, "auto")),
        (GRAPH, {"num_parts": 8}, 3, (8, 3, "auto")),
        (GRAPH, {"num_parts": 8, "parts_per_step": 4}, 1, (8, 4, "auto")),
        (GRAPH, {"parts_per_step": 4}, 2, (4, 4, "auto")),
        (prepared(6), {}, 2, (6, 2, "contiguous")),
        (prepared(6), {"num_parts": 6}, 2, (6, 2, "contiguous")),
        (prepared(6), {"num_parts": 4}, 2, (4, 2, "auto")),
    ],
    ids=["one part a rank", "many parts", "one rank", "by step", "prepared", "prepared alike", "prepared otherwise"],
)
def test_parts_follow_from_options_graph_and_ranks(
    graph: Graph, values: dict[str, Any], ranks: int, expected: tuple[int, int, str]
) -> None:
    config = for_ranks(resolve("lazygnn", "mine", values, use_recipe=False), graph, ranks)
    assert isinstance(config.model, ClusterOptions)
    assert (config.model.num_parts, config.trainer.parts_per_step, config.model.partition) == expected


@pytest.mark.parametrize(
    ("method", "values", "ranks", "message"),
    [
        ("lazygnn", {"num_parts": 2}, 3, "3 ranks share 2 parts"),
        ("mlp", {"parts_per_step": 2}, 3, "3 ranks share 2 parts"),
        ("lazygnn", {"parts_per_step": 1}, 1, "needs a graph of several parts"),
        ("gcn", {}, 2, "cannot train `gcn`"),
        ("mlp", {"logger": "tensorboard"}, 2, "`logger` is tensorboard"),
    ],
)
def test_what_does_not_fit_is_refused(method: str, values: dict[str, Any], ranks: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        for_ranks(resolve(method, "mine", values, use_recipe=False), GRAPH, ranks)


PLENTY = block_graph(600, 3, degree=4, in_channels=4, num_classes=3)


def test_an_epoch_of_ranks_counts_steps_as_that_of_one_process_counts_batches() -> None:
    alone = resolve("lazygnn", "mine", {"num_parts": 40, "parts_per_batch": 4}, graph=PLENTY)
    ranks = resolve_for_ranks("lazygnn", "mine", {"num_parts": 40}, PLENTY, 4)
    assert (ranks.trainer.parts_per_step, ranks.trainer.epochs) == (4, alone.trainer.epochs)
    assert ranks.trainer.warmup_epochs == alone.trainer.warmup_epochs
    # as an assignment says that it is not set
    assert resolve_for_ranks("lazygnn", "mine", {"num_parts": 40, "parts_per_step": "none"}, PLENTY, 4) == ranks
    # one step an epoch, as in a full batch
    full = resolve("lazygnn", "mine", graph=PLENTY)
    assert resolve_for_ranks("lazygnn", "mine", {}, PLENTY, 4).trainer.epochs == full.trainer.epochs


@pytest.mark.parametrize("method", ["lazygnn", "gcn-gas", "mlp"])
def test_parts_are_not_normalized_by_their_own_statistics(method: str) -> None:
    def norm(**values: Any) -> str:
        return str(resolve_for_ranks(method, "mine", values, PLENTY, 2).model.model_dump()["norm"])

    assert resolve(method, "mine", graph=PLENTY).model.model_dump()["norm"] == "batch"
    assert norm() == "layer"
    assert norm(norm="batch") == "batch"
    assert norm(norm="none") == "none"


def test_an_option_for_parts_needs_no_number_of_parts(tmp_path: Path) -> None:
    values = {"halo_gradients": True}
    with pytest.raises(ConfigError, match="`num_parts` is 1"):
        resolve("lazygnn", "mine", values)
    assert check_values("lazygnn", "mine", values).model.model_dump()["halo_gradients"]
    config = resolve_for_ranks("lazygnn", str(tmp_path), values, prepared(6), 2)
    assert isinstance(config.model, ClusterOptions)
    assert (config.model.num_parts, config.model.partition) == (6, "contiguous")
    with pytest.raises(ConfigError, match="unknown option `halo_gradient`"):
        check_values("lazygnn", "mine", {"halo_gradient": True})


def make_run(path: Path, dataset: Path, graph: Graph, method: str = "lazygnn") -> Run:
    config = for_ranks(resolve(method, str(dataset), {"parts_per_step": 3}, use_recipe=False), graph, 3)
    return Run.create(path, config)


def test_a_graph_is_sorted_once_and_its_order_is_kept(tmp_path: Path) -> None:
    from lazygnn.methods import read_config

    GRAPH.save(tmp_path / "mine.npz")
    run = make_run(tmp_path / "run", tmp_path / "mine.npz", GRAPH)
    folder = parts_folder(run, run.config(read_config))
    found, order = load_folder(folder), torch.from_numpy(np.load(run.path / ORDER))
    assert found.part_ptr is not None
    assert len(found.part_ptr) == 4
    assert torch.equal(found.y, GRAPH.y[order])
    written = (folder / "graph.json").stat().st_mtime_ns
    assert parts_folder(run, run.config(read_config)) == folder
    assert (folder / "graph.json").stat().st_mtime_ns == written


@pytest.mark.parametrize("method", ["lazygnn", "mlp"])
def test_a_prepared_graph_is_read_in_place(tmp_path: Path, method: str) -> None:
    from lazygnn.methods import read_config

    graph = prepared(3)
    save_folder(graph, tmp_path / "graph")
    run = make_run(tmp_path / "run", tmp_path / "graph", graph, method)
    assert parts_folder(run, run.config(read_config)) == (tmp_path / "graph").absolute()
    assert not (run.path / "parts").exists()
