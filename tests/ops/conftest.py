"""Both code paths that depend on the CPU, whatever this machine has."""

import pytest
import torch


@pytest.fixture(params=[True, False], ids=["with MKL", "without MKL"])
def mkl(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether torch reports MKL, which selects the product on a CPU."""
    available: bool = request.param
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: available)
    return available
