"""What a run was trained with: versions, and the commit if lazygnn itself is a git checkout."""

import platform
import subprocess
from pathlib import Path

import torch

from lazygnn.version import VERSION

PACKAGE = Path(__file__).parents[1]


def describe_environment() -> dict[str, str | None]:
    """Returns the versions of lazygnn, Python and torch, and the commit of lazygnn; `None` if it is not known."""
    return {
        "lazygnn": VERSION,
        "commit": find_commit(PACKAGE),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
    }


def find_commit(package: Path) -> str | None:
    """Returns the commit of a checkout that has its package in `src`, with `+` if tracked files were changed since.

    A package that is installed below a checkout of something else does not have a commit.
    """
    root = package.parents[1]
    if not (root / ".git").exists() or package.parent.name != "src":
        return None
    commit, changes = _git(root, "rev-parse", "HEAD"), _git(root, "status", "--porcelain", "--untracked-files=no")
    return None if not commit else f"{commit}+" if changes else commit


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
