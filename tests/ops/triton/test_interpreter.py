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
FILES = ["test_products.py", "test_activations.py", "test_history_rows.py", "test_host_rows.py", "test_layer_norm.py"]


@pytest.mark.skipif(INTERPRETED, reason="this process is already interpreted")
def test_kernels_are_correct_in_the_interpreter() -> None:
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not gpu"]
    command = [sys.executable, "-m", "pytest", *options, *(str(HERE.with_name(name)) for name in FILES)]
    done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_all_kernel_tests_are_listed() -> None:
    found = {path.name for path in HERE.parent.glob("test_*.py") if "(device: str" in path.read_text()}
    assert set(FILES) == found - {HERE.name}
