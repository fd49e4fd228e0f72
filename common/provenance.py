"""The provenance of a number: commit, date, hardware, versions."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch


def provenance() -> dict[str, str]:
    """Returns the provenance of a number measured now."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    # the commit of this code, independent of the current folder
    here = Path(__file__).parent
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return {
        # a copy of the tree without its history gets its commit from the environment
        "commit": os.environ.get("LAZYGNN_COMMIT") or git.stdout.strip() or "unknown",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, GPU: {gpu}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": _version("torch_geometric"),
        "triton": _version("triton"),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"
