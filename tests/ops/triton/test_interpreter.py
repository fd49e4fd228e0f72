"""Runs the kernel tests of this folder in Triton's interpreter, on any machine, each file in a process of its own.

The interpreter must be enabled before Triton is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ops.triton.helpers import INTERPRETED

HERE = Path(__file__)
# the files with tests that use the `device` fixture
FILES = [path for path in sorted(HERE.parent.glob("test_*.py")) if path != HERE and "(device: str" in path.read_text()]


@pytest.mark.skipif(INTERPRETED, reason="this process is already interpreted")
@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_kernels_are_correct_in_the_interpreter(path: Path) -> None:
    options = ["-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not gpu"]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


def test_all_kernel_tests_are_found() -> None:
    expected = {"test_activations", "test_history_rows", "test_host_rows", "test_products"}
    found = {path.stem for path in FILES}
    assert found >= expected
    assert HERE.stem not in found
