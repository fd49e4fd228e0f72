"""What is installed: ranges with an upper bound, a lock with hashes, and a source archive without tests."""

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.audit import judge
from scripts.lock import describe, fits, is_complete, read_pins

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
DEVELOPMENT = ("dev",)


def ranges() -> list[Requirement]:
    """Returns what the library and its extras need, but for those of work on the library."""
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]
    users = [each for name, needs in extras.items() if name not in DEVELOPMENT for each in needs]
    return [Requirement(each) for each in (*PROJECT["dependencies"], *users)]


def locked() -> list[Requirement]:
    return [Requirement(pin) for pin in read_pins(LOCK)]


@pytest.mark.parametrize("need", ranges(), ids=str)
def test_every_range_has_an_upper_bound(need: Requirement) -> None:
    assert {"<", "<="} & {each.operator for each in need.specifier}


def test_the_lock_has_a_version_and_hashes_for_every_package() -> None:
    entries = re.split(r"\n(?=\w)", re.sub(r"^#.*\n", "", LOCK, flags=re.MULTILINE).strip())
    assert len(entries) > 80
    for entry in entries:
        assert re.fullmatch(r"[\w.-]+==[\w.]+( ; .+)?( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry


def test_the_lock_fits_the_ranges() -> None:
    versions: dict[str, list[str]] = {}
    for pin in locked():
        versions.setdefault(canonicalize_name(pin.name), []).append(next(iter(pin.specifier)).version)
    wanted = [*ranges(), *(Requirement(each) for each in PROJECT["optional-dependencies"]["dev"])]
    found = [need for need in wanted if canonicalize_name(need.name) in versions]
    assert len(found) > 15
    for need in found:
        for version in versions[canonicalize_name(need.name)]:
            assert need.specifier.contains(version), f"{need} does not allow {version}"


@pytest.mark.parametrize(
    ("wheel", "wanted"),
    [
        ("a-1-py3-none-any.whl", True),
        ("a-1-py2.py3-none-any.whl", True),
        ("a-1-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("a-1-cp312-cp312-manylinux_2_28_aarch64.whl", True),
        ("a-1-cp39-abi3-manylinux_2_28_aarch64.whl", True),
        ("a-1-cp314-abi3-manylinux_2_28_aarch64.whl", False),
        ("a-1-cp310-cp310-manylinux_2_28_x86_64.whl", False),
        ("a-1-cp312-cp312-musllinux_1_2_x86_64.whl", False),
        ("a-1-cp312-cp312-win_amd64.whl", False),
        ("a-1-cp312-cp312-macosx_11_0_arm64.whl", True),
        ("a-1-cp312-cp312-manylinux_2_28_s390x.whl", False),
    ],
)
def test_the_lock_holds_wheels_of_the_supported_platforms(wheel: str, wanted: bool) -> None:
    assert fits(wheel) is wanted


def test_a_package_without_a_wheel_for_some_platform_has_its_source_in_the_lock() -> None:
    def file(name: str, digest: str) -> dict[str, Any]:
        return {"url": f"https://example.org/{name}", "hashes": {"sha256": digest}}

    wheels = [file(f"a-1-cp311-cp311-manylinux_2_28_{machine}.whl", machine) for machine in ("x86_64", "aarch64")]
    source = file("a-1.tar.gz", "source")
    package = {"name": "a", "version": "1", "marker": "x == 'y'", "wheels": wheels, "sdist": source}
    lines = ["a==1 ; x == 'y'", "--hash=sha256:aarch64", "--hash=sha256:source", "--hash=sha256:x86_64"]
    assert describe(package).split(" \\\n    ") == [*lines[:-1], lines[-1] + "\n"]
    assert is_complete({"a-1-py3-none-any.whl": ""})
    assert not is_complete({"a-1-cp311-abi3-manylinux_2_28_x86_64.whl": ""})


def test_an_audit_says_what_it_found_or_that_it_could_not() -> None:
    good, skipped = {"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not there"}
    bad = {"name": "c", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}
    assert judge([good, skipped]) == (["no known vulnerability in 1 packages; 1 are not in the database"], 0)
    assert judge([good, bad]) == (["c 2: CVE-1, fixed in 2.1", "1 known vulnerabilities in 2 packages"], 1)
    for packages in ([], [skipped]):
        (line,), status = judge(packages)
        assert "not audited: the database of vulnerabilities cannot be reached" in line
        assert status == 0


def test_the_source_archive_holds_what_the_package_is_built_from(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as opened:
        names = {Path(*Path(name).parts[1:]).as_posix() for name in opened.getnames()}
    files = {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "pyproject.toml", "PKG-INFO"}
    assert {name for name in names if not name.startswith("src/lazygnn/")} - {".gitignore"} == files
    assert {"src/lazygnn/graph.py", "src/lazygnn/py.typed", "src/lazygnn/data/wordnet-small.npz"} <= names
    assert not [name for name in names if "__pycache__" in name]
