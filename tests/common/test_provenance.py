"""The provenance of numbers."""

from pathlib import Path

import pytest

from common.provenance import provenance


def test_the_commit_is_that_of_the_code_and_not_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAZYGNN_COMMIT", raising=False)
    expected = provenance()["commit"]
    monkeypatch.chdir(tmp_path)
    assert provenance()["commit"] == expected


def test_a_copy_without_history_gets_its_commit_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAZYGNN_COMMIT", "abc1234")
    assert provenance()["commit"] == "abc1234"
