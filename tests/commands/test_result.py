from pathlib import Path
from typing import Any

import pytest
import torch

from lazygnn.commands.result import make_result, peak_memory_mib
from lazygnn.methods import resolve
from lazygnn.task import Task


@pytest.mark.parametrize(
    ("trained", "task", "further"),
    [
        ({}, Task("single-label", 3), {}),
        ({"shares": {}}, Task("single-label", 3), {}),
        ({"shares": {"stack": 1.0}}, Task("single-label", 3), {"shares": {"stack": 1.0}}),
        (
            {"shares": {"stack": 0.75, "mlp": 0.25}},
            Task("multi-label", 3, threshold=0.2),
            {"shares": {"stack": 0.75, "mlp": 0.25}, "threshold": 0.2},
        ),
    ],
)
def test_a_result_has_the_shares_of_a_mixture_and_the_threshold_of_several_labels(
    trained: dict[str, Any], task: Task, further: dict[str, Any]
) -> None:
    config = resolve("mlp", "mine")
    place: dict[str, Any] = {"device": torch.device("cpu"), "path": Path("run")}
    result = make_result(config, "accuracy", {"val": 0.5}, trained=trained, task=task, **place)
    assert {name: result[name] for name in result if name in ("shares", "threshold")} == further
    assert (result["val"], result["test"]) == (0.5, None)


def test_peak_memory_on_a_cpu_is_that_of_the_process() -> None:
    before = peak_memory_mib(torch.device("cpu"))
    held = torch.ones(2**26)
    grown = peak_memory_mib(torch.device("cpu"))
    # torch alone takes more than 50 MiB; no test takes 64 GiB
    assert 50 < before <= grown < 65_536
    assert grown >= held.nbytes / 2**20
