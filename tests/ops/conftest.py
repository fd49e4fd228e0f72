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


@pytest.fixture(
    params=[
        lambda x: x[:, :47],
        lambda x: x[1:, 4:20],
        lambda x: x[:, 1:18],
        lambda x: x.T[:, :9],
        lambda x: x[::2],
        lambda x: x[:1].expand(20, 48),
        lambda x: x.reshape(-1)[2:962].view(20, 48),
        lambda x: x.reshape(-1)[: 19 * 48 + 47].as_strided((20, 47), (48, 1)),
    ]
)
def view(request: pytest.FixtureRequest) -> Callable[[Tensor], Tensor]:
    """Makes rows of 30 by 48 that lie anyhow: unaligned, transposed, apart, on top of each other."""
    made: Callable[[Tensor], Tensor] = request.param
    return made


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
