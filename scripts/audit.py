"""Looks up the packages of `requirements.lock` in a database of known vulnerabilities.

    python scripts/audit.py PIP_AUDIT

`make audit` installs pip-audit and calls this. The status is 1 if a vulnerability is known. Where the database cannot
be reached, that is said, and the status is 0.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"


def main() -> None:
    """Runs pip-audit and judges what it found."""
    options = ["--requirement", str(LOCK), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    done = subprocess.run([sys.argv[1], *options, "--format", "json"], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        packages = []
    lines, status = judge(packages)
    print("\n".join(lines if packages else [*lines, done.stderr.strip()]))
    sys.exit(status)


def judge(packages: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Returns what to say about the packages that pip-audit lists, and the exit status."""
    audited = [package for package in packages if "vulns" in package]
    if not audited:
        return ["not audited: the database of vulnerabilities cannot be reached from here; run it elsewhere"], 0
    lines = [
        f"{package['name']} {package['version']}: {each['id']}, fixed in {', '.join(each['fix_versions']) or 'none'}"
        for package in audited
        for each in package["vulns"]
    ]
    known = f"{len(lines)} known vulnerabilities" if lines else "no known vulnerability"
    skipped = len(packages) - len(audited)
    said = f"{known} in {len(audited)} packages" + (f"; {skipped} are not in the database" if skipped else "")
    return [*lines, said], int(bool(lines))


if __name__ == "__main__":
    main()
