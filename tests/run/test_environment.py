import platform
import subprocess
from pathlib import Path

import pytest
import torch

import lazygnn
from lazygnn.run.environment import describe_environment, find_commit


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with one commit; returns its package."""
    package = tmp_path / "src" / "lazygnn"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    who = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return package


def test_versions_are_those_of_this_process() -> None:
    found = describe_environment()
    assert found["lazygnn"] == lazygnn.__version__
    assert (found["python"], found["torch"]) == (platform.python_version(), torch.__version__)


def test_a_checkout_has_a_commit_and_a_mark_for_changes(checkout: Path) -> None:
    commit = find_commit(checkout)
    assert commit is not None
    assert len(commit) == 40
    (checkout / "untracked.py").write_text("")
    assert find_commit(checkout) == commit
    (checkout / "__init__.py").write_text("changed = True\n")
    assert find_commit(checkout) == f"{commit}+"


def test_an_installed_package_has_no_commit(checkout: Path, tmp_path: Path) -> None:
    # an environment inside of another project's repository
    installed = tmp_path / "site-packages" / "lazygnn"
    installed.mkdir(parents=True)
    assert find_commit(installed) is None
    assert find_commit(Path("/nowhere/src/lazygnn")) is None


def test_without_git_there_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*words: object, **options: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)
    assert find_commit(checkout) is None
