"""Contenders of a GPU."""

import pytest
import torch

import benchmarks.contenders
import benchmarks.trained
import common.shapes
from tests.benchmarks.helpers import CPU, tiny


@pytest.mark.parametrize(
    "name",
    [
        "ours-bf16",
        "ours-full-bf16",
        "ours-host-tf32",
        "ours-host-all-tf32",
        "ours-host-gradients-tf32",
        "gas-our-kernels",
        "appnp-our-kernels",
    ],
)
def test_contenders_of_a_gpu_are_right_on_a_cpu_too(name: str) -> None:
    contender = benchmarks.contenders.contenders(tiny(), torch.device("cuda"))[name]
    row = benchmarks.trained.measure(contender, "default", common.shapes.draw(tiny(), CPU), CPU, 1, 4)
    assert row["status"] == "ok", row
    assert (row["error"] > 1e-4) == ("tf32" not in name)
