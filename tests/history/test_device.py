"""Rows on the compute device."""

from typing import Literal

import pytest
import torch

from lazygnn.history import open_history
from lazygnn.history.codec import Codec
from lazygnn.history.device import DeviceStore
from lazygnn.propagation import Drift


def test_all_tiers_of_a_cpu_work_in_place_and_start_no_thread() -> None:
    assert isinstance(open_history(2, 1, Drift()).values, DeviceStore)
    assert isinstance(open_history(2, 1, Drift(), tier="host").values, DeviceStore)
    assert type(open_history(2, 1, Drift(), tier="pinned").values) is DeviceStore


def test_nothing_is_converted_without_need() -> None:
    store = DeviceStore({"rows": torch.zeros(3, 2)}, Codec(torch.float32, torch.float32), torch.device("cpu"))
    store.write(torch.tensor([1]), torch.ones(1, 2))
    assert store.state()["rows"] is store.parts["rows"]
    assert store.parts["rows"].tolist() == [[0, 0], [1, 1], [0, 0]]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("tier", ["device", "host", "pinned"])
def test_a_step_does_not_wait_for_the_device(tier: Literal["device", "host", "pinned"]) -> None:
    history = open_history(1000, 8, Drift(0.1), tier=tier, device="cuda")
    history.measure = True
    nodes = torch.randperm(1000, device="cuda")[:500]
    fresh = torch.randn(200, 8, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            history.prefetch(nodes, 200)
            start = history.start(nodes, 200, fresh).x
            history.push(nodes[:200], start, fresh)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert history.pushed.is_cuda
    assert history.mean_age() == pytest.approx(3.2)
