"""Time and memory of an epoch."""

import pytest
import torch

from experiments.paper import measuring
from experiments.paper.measuring import GPU, HOST, TIME, UPDATES, epochs, measure
from lazygnn.config import Config
from lazygnn.graph import Graph
from lazygnn.methods import resolve
from lazygnn.training import EpochReport, Trainer

SECONDS = [50.0, 30.0, 1.0, 5.0, 2.0, 70.0]


def config_of(method: str, repeats: int, **values: object) -> Config:
    return resolve(method, "small", epochs(repeats) | values, device="cpu")


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the epochs of a trainer the times of `SECONDS`."""

    class Clocked(Trainer):
        def _run_epoch(self) -> EpochReport:
            report = super()._run_epoch()
            return EpochReport(report.epoch, report.loss, SECONDS[report.epoch - 1], report.lr, report.scores)

    monkeypatch.setattr(measuring, "Trainer", Clocked)


@pytest.mark.usefixtures("clocked")
def test_the_time_is_the_median_without_the_warm_up_and_the_last_epoch(block_graph: Graph) -> None:
    found = measure(config_of("gcn", 3), block_graph)
    assert found["status"] == "ok"
    assert (found[TIME], found[UPDATES], found["epochs"]) == (2.0, 1, 3)
    # memory is that of a GPU, or of histories in host memory
    assert found[GPU] is None
    assert found[HOST] is None


@pytest.mark.usefixtures("clocked")
@pytest.mark.parametrize(("limit", "expected"), [(0.0, 1), (0.5, 1), (1.5, 2), (1000.0, 3)])
def test_no_epoch_is_begun_after_the_limit(block_graph: Graph, limit: float, expected: int) -> None:
    assert measure(config_of("gcn", 3), block_graph, limit=limit)["epochs"] == expected


@pytest.mark.usefixtures("clocked")
@pytest.mark.parametrize("drawn", [False, True])
def test_the_time_of_a_few_batches_is_scaled_up(block_graph: Graph, drawn: bool) -> None:
    config = config_of("cluster-gcn", 3, num_parts=4, parts_per_batch=1, partition="contiguous")
    found = measure(config, block_graph, 2, drawn=drawn)
    assert (found[TIME], found[UPDATES], found["batches"]) == (4.0, 4, "2 of 4")


def test_nothing_is_evaluated(block_graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        pytest.fail("evaluated")

    monkeypatch.setattr(Trainer, "_evaluate", fail)
    assert measure(config_of("gcn", 1), block_graph)["epochs"] == 1


def test_a_system_that_does_not_fit_is_out_of_memory(monkeypatch: pytest.MonkeyPatch, block_graph: Graph) -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(measuring, "build", full)
    assert measure(config_of("lazygnn", 1), block_graph) == {"status": "out of memory"}
