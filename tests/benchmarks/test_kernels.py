"""The switch of kernels."""

import os

import pytest

import benchmarks.kernels


def test_plain_kernels_are_used_within_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = benchmarks.kernels.kernels
    monkeypatch.delenv("LAZYGNN_KERNELS", raising=False)
    with kernels(plain=True):
        assert os.environ["LAZYGNN_KERNELS"] == "reference"
        with kernels(plain=False):
            assert os.environ["LAZYGNN_KERNELS"] == "auto"
        assert os.environ["LAZYGNN_KERNELS"] == "reference"
    assert "LAZYGNN_KERNELS" not in os.environ
