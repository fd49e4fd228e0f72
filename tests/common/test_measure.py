"""Memory of steps."""

import pytest
import torch

import common.measure


def test_memory_of_a_step_is_counted_above_the_resident_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    measure, held, most = common.measure, [500, 100, 110, 110, 900], [900, 400, 330, 350, 990]
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: held.pop(0) * 2**20)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: most.pop(0) * 2**20)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    memory = measure.Memory(torch.device("cuda"))
    for _ in range(5):
        memory.record()
    assert memory.summary(slice(2, -1)) == {"resident MiB": 110.0, "step peak MiB": 240.0}
