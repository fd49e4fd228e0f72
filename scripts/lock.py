"""Writes `requirements.lock`: a version and the hashes of its files for every package that `make install` installs.

    pip install uv
    python scripts/lock.py [NAME==VERSION ...]

The versions of the lock stay, but for those that are given. A package that is not needed any more is removed from the
file by hand. Hashes are those of the package index, for Linux (x86-64 and aarch64) and macOS (arm64).

On Linux, the index has torch with CUDA and its libraries. Where the build for the CPU is used instead, `CPU_BUILD` has
its hashes, and pip must be given a source for it.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"
PYTHONS = ("cp311", "cp312")
MACHINES = ("x86_64", "aarch64")
PLATFORM = re.compile(r"any|manylinux\S*(x86_64|aarch64)|macosx\S*(arm64|universal2)")
# files that no index holds: torch for the CPU, on the machines with this marker
CPU_BUILD = {
    "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl": (
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
    )
}
# pip prefers a file of the index, whose hash it knows, so this one must not be in the lock
REPLACED = "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"
HEADER = """\
# Every file that `make install` may install; written by `python scripts/lock.py`.
# Python 3.11 on x86-64 Linux gets torch for the CPU, for which pip needs a source such as `--find-links`.
# Elsewhere on Linux, torch comes with CUDA.
"""


def main() -> None:
    """Replaces the lock."""
    pins = read_pins(LOCK.read_text())
    for given in sys.argv[1:]:
        name, _, version = given.partition("==")
        marker = next((pin.partition(" ; ")[2] for pin in pins if pin.startswith(f"{name}==")), "")
        pins = [pin for pin in pins if not pin.startswith(f"{name}==")] + [join(name, version, marker)]
    packages = find_files(pins)
    LOCK.write_text(HEADER + "".join(map(describe, packages)))


def read_pins(lock: str) -> list[str]:
    """Returns the lines of a lock without comments and hashes."""
    lines = [line.rstrip("\\ ") for line in lock.splitlines()]
    return [line for line in lines if line and not line.startswith(("#", " "))]


def join(name: str, version: str, marker: str) -> str:
    """Returns a requirement."""
    return f"{name}=={version}" + (f" ; {marker}" if marker else "")


def find_files(pins: list[str]) -> list[dict[str, Any]]:
    """Returns the packages with all of their files, sorted by name."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, found = Path(folder) / "wanted.txt", Path(folder) / "pylock.toml"
        wanted.write_text("\n".join(pins) + "\n")
        options = ["--no-deps", "--universal", "--no-config", "--quiet", "--python-version", "3.11"]
        subprocess.run(["uv", "pip", "compile", *options, wanted, "--output-file", found], check=True)
        packages: list[dict[str, Any]] = tomllib.loads(found.read_text())["packages"]
    return packages


def describe(package: dict[str, Any]) -> str:
    """Returns the lines of a package: its version, and the hash of each file."""
    files = {str(wheel["url"]).rpartition("/")[2]: wheel["hashes"]["sha256"] for wheel in package.get("wheels", [])}
    kept = {name: digest for name, digest in files.items() if fits(name) and name != REPLACED}
    if package["name"] == "torch":
        kept |= CPU_BUILD
    if not is_complete(kept) and "sdist" in package:
        # built where there is no wheel
        kept["sdist"] = package["sdist"]["hashes"]["sha256"]
    hashes = "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(kept.values()))
    return join(package["name"], package["version"], package.get("marker", "")) + hashes + "\n"


def fits(wheel: str) -> bool:
    """Returns whether a wheel can be installed by one of the interpreters, on one of the platforms."""
    python, abi, platform = wheel.removesuffix(".whl").split("-")[-3:]
    stable = abi == "abi3" and any(int(tag[3:] or 0) <= 11 for tag in python.split(".") if tag.startswith("cp3"))
    known = stable or (not abi.endswith("t") and bool({"py3", *PYTHONS} & set(python.split("."))))
    return known and any(PLATFORM.fullmatch(one) for one in platform.split("."))


def is_complete(files: dict[str, str]) -> bool:
    """Returns whether wheels cover every interpreter and machine on Linux."""

    def covers(wheel: str, python: str, machine: str) -> bool:
        tag, abi, platform = wheel.removesuffix(".whl").split("-")[-3:]
        return (abi in ("abi3", "none") or python in tag) and (platform == "any" or machine in platform)

    pairs = [(python, machine) for python in PYTHONS for machine in MACHINES]
    return all(any(covers(wheel, *pair) for wheel in files) for pair in pairs)


if __name__ == "__main__":
    main()
