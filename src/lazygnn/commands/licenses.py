"""Lists the packages that lazygnn needs, with their licenses, from the metadata of what is installed."""

import re
from importlib import metadata
from typing import Any

from rich.table import Table

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CLASSIFIER = "License :: "
# a longer field is the text of the license
_LONGEST = 60
_OWN_WORK = ("dev", "docs")


def license_table() -> Table:
    """Returns a table of lazygnn and all that it needs: version, license, and for which extra."""
    table = Table("package", "version", "license", "for")
    for name, extra in sorted(needed_packages("lazygnn").items()):
        found = metadata.distribution(name)
        table.add_row(name, found.version, license_of(found), extra)
    return table


def needed_packages(package: str) -> dict[str, str]:
    """Returns the packages that are installed and that a package needs, directly or not, with the first extra.

    The package itself is one of them. A package that is needed without an extra has an empty text.
    """
    found: dict[str, str] = {}
    waiting = [(package, "")]
    while waiting:
        name, extra = waiting.pop(0)
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            # for an extra, or for another platform
            continue
        if name in found:
            continue
        found[name] = extra
        needs = [(_normalized(text), _extra_of(text)) for text in requirements]
        # extras of other packages are not asked for
        waiting += needs if name == package else [(need, extra) for need, own in needs if not own]
        # what is needed without an extra comes first, and what is needed for work on the library last
        waiting.sort(key=lambda need: (need[1] in _OWN_WORK, need[1]))
    return found


def license_of(found: metadata.Distribution) -> str:
    """Returns the license of a package: its expression, its short name, or its classifiers."""
    known: dict[str, Any] = found.metadata.json
    if "license_expression" in known:
        return str(known["license_expression"])
    text = str(known.get("license", "")).strip()
    if text not in ("", "UNKNOWN") and len(text) <= _LONGEST and "\n" not in text:
        return text
    named = [each for each in known.get("classifier", []) if each.startswith(_CLASSIFIER)]
    return ", ".join(each.rpartition(" :: ")[2] for each in named) or "see its files"


def _normalized(requirement: str) -> str:
    match = _NAME.match(requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def _extra_of(requirement: str) -> str:
    match = re.search(r"\bextra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
    return "" if match is None else match[1]
