"""The command `doctor`."""

from tests.cli.helpers import Command


def test_doctor_prints_versions(lazygnn: Command) -> None:
    done = lazygnn("doctor")
    assert done.status == 0
    assert "safetensors" in done.out


def test_doctor_lists_licenses(lazygnn: Command) -> None:
    done = lazygnn("doctor", "--licenses")
    assert done.status == 0
    assert "license" in done.out
    assert "pydantic" in done.out
