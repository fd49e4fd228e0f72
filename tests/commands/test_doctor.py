import io

import pytest
from rich.console import Console

from lazygnn.commands.doctor import installation_table
from lazygnn.ops import describe_kernels


def shown() -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(installation_table())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_versions_devices_and_packages_are_named() -> None:
    out = shown()
    for text in ("lazygnn", "python", "torch", "GPU", "safetensors", "pymetis", describe_kernels()):
        assert text in out


def test_a_missing_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lazygnn.commands.doctor._PACKAGES", ("numpy", "no-such-package"))
    (line,) = [line for line in shown().splitlines() if "no-such-package" in line]
    assert "not installed" in line
