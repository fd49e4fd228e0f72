"""Runs the kernel tests of this folder in Triton's interpreter, on any machine, in a process of its own.

The interpreter must be enabled before Triton is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.triton.helpers import INTERPRETED

HERE = Path(__file__)
PROBE = HERE.with_name("loop_probe.py")
# how NumPy refuses what Triton 3.6 does with the bound of a loop
REFUSED = "only 0-dimensional arrays can be converted to Python scalars"
FILES = ["test_products.py", "test_activations.py", "test_history_rows.py", "test_host_rows.py", "test_layer_norm.py"]


def interpreted(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with Triton's interpreter."""
    return subprocess.run(
        [sys.executable, *arguments], env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True
    )


@pytest.mark.skipif(INTERPRETED, reason="this process is already interpreted")
def test_kernels_are_correct_in_the_interpreter() -> None:
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not gpu"]
    done = interpreted("-m", "pytest", *options, *(str(HERE.with_name(name)) for name in FILES))
    if done.returncode != 0 and REFUSED in interpreted(str(PROBE)).stderr:
        pytest.skip("this Triton's interpreter cannot run a loop with this NumPy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_all_kernel_tests_are_listed() -> None:
    found = {path.name for path in HERE.parent.glob("test_*.py") if "(device: str" in path.read_text()}
    assert set(FILES) == found - {HERE.name}
