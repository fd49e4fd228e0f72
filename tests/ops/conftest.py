"""Where kernels are tested: on a GPU, or in Triton's interpreter, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
HERE = (
    pytest.param("cuda", marks=pytest.mark.gpu)
    if torch.cuda.is_available() and not INTERPRETED
    else pytest.param("cpu", marks=pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreter's process"))
)


@pytest.fixture(params=[HERE])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where kernels run; new memory is full of NaN there."""
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, _poisoned(getattr(torch, name)))
    torch.manual_seed(0)
    return str(request.param)


@pytest.fixture
def interpret(request: pytest.FixtureRequest) -> Callable[[], None]:
    """Runs the tests of this file in the interpreter, all of which must pass."""
    if INTERPRETED:
        pytest.skip("this is that process")

    def run() -> None:
        command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", str(Path(request.path))]
        done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "passed" in done.stdout

    return run


def _poisoned(new: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def make(*args: Any, **options: Any) -> Tensor:
        memory = new(*args, **options)
        return memory.fill_(torch.nan) if memory.is_floating_point() else memory

    return make
