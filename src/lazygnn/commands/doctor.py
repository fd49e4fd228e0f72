"""Describes the installation for a bug report."""

import platform
from importlib import metadata

import torch
from rich.table import Table

from lazygnn.ops import describe_kernels
from lazygnn.version import VERSION

_PACKAGES = (
    "numpy",
    "pydantic",
    "safetensors",
    "matplotlib",
    "pymetis",
    "kaminpar",
    "torch_geometric",
    "pyarrow",
    "optuna",
    "tensorboard",
    "triton",
)


def installation_table() -> Table:
    """Returns a table of versions, devices and optional packages."""
    mkl = "yes" if torch.backends.mkl.is_available() else "no"
    table = Table("what", "found")
    table.add_row("lazygnn", VERSION)
    table.add_row("python", platform.python_version())
    table.add_row("platform", platform.platform())
    table.add_row("torch", f"{torch.__version__}, {torch.get_num_threads()} threads, MKL {mkl}")
    table.add_row("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none")
    table.add_row("kernels", describe_kernels())
    for package in _PACKAGES:
        table.add_row(package, _version(package))
    return table


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
