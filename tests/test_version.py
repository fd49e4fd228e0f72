"""One version for the package, its metadata and its citation."""

from importlib import metadata
from pathlib import Path

import pytest

import lazygnn
from lazygnn.version import VERSION


def test_the_package_has_the_version() -> None:
    assert lazygnn.__version__ == VERSION


def test_an_installed_package_has_the_version() -> None:
    try:
        installed = metadata.version("lazygnn")
    except metadata.PackageNotFoundError:
        pytest.skip("a checkout on the path that was not installed")
    assert installed == VERSION


def test_the_citation_has_the_version() -> None:
    citation = Path(__file__).parents[1] / "CITATION.cff"
    assert f"version: {VERSION}\n" in citation.read_text()
