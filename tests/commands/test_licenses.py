import io
from importlib import metadata
from pathlib import Path

import pytest
from rich.console import Console

from lazygnn.commands.licenses import license_of, license_table, needed_packages

PACKAGES = {
    "mine": [
        "Direct.Package>=1; python_version > '3'",
        "shared",
        "tool; extra == 'dev'",
        'plots[all]; extra == "draw"',
    ],
    "direct-package": ["shared (>=2)", 'unasked; extra == "x"', "absent", "mine"],
    "shared": [],
    "tool": ["helper", "shared"],
    "helper": [],
    "plots": ["helper"],
    "unasked": [],
}


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, needs in PACKAGES.items():
        write(tmp_path, name, "".join(f"Requires-Dist: {need}\n" for need in needs))
    monkeypatch.syspath_prepend(tmp_path)


def write(folder: Path, name: str, lines: str) -> metadata.Distribution:
    made = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.2\n{lines}")
    return metadata.Distribution.at(made)


@pytest.mark.usefixtures("packages")
def test_all_that_is_needed_is_found_with_its_extra() -> None:
    assert needed_packages("mine") == {
        "mine": "",
        "direct-package": "",
        "shared": "",
        "plots": "draw",
        # for `draw`, too, which is not for work on the library alone
        "helper": "draw",
        "tool": "dev",
    }


def test_a_package_that_is_not_installed_needs_nothing() -> None:
    assert needed_packages("no-such-package") == {}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("License-Expression: MIT AND Zlib\nLicense: other\n", "MIT AND Zlib"),
        ("License: BSD\nClassifier: License :: OSI Approved :: MIT License\n", "BSD"),
        ("License: UNKNOWN\nClassifier: License :: OSI Approved :: MIT License\n", "MIT License"),
        (f"License: {'long ' * 20}\nClassifier: License :: OSI Approved :: ISC License (ISCL)\n", "ISC License (ISCL)"),
        ("Classifier: Topic :: Software\n", "see its files"),
    ],
)
def test_a_license_is_read_from_the_metadata(tmp_path: Path, lines: str, found: str) -> None:
    assert license_of(write(tmp_path, "one", lines)) == found


def test_every_package_of_the_table_has_a_license() -> None:
    console = Console(file=io.StringIO(), width=200)
    table = license_table()
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    out = console.file.getvalue()
    for name in ("lazygnn", "torch", "numpy", "typing-extensions"):
        assert f" {name} " in out
    assert all(table.columns[2]._cells)
