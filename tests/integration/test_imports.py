"""What importing the library costs, and who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lazygnn

SOURCE = Path(lazygnn.__file__).parent
HEAVY = (
    "matplotlib",
    "torch_geometric",
    "sklearn",
    "ogb",
    "pymetis",
    "kaminpar",
    "triton",
    "scipy",
    "pyarrow",
    "pandas",
    "polars",
    "networkx",
    "optuna",
    "tensorboard",
)

LOWEST = {
    "errors",
    "files",
    "ops",
    "config",
    "task",
    "checks",
    "fixed_point",
    "inference",
    "tunable",
    "adjacency",
    "untrusted",
    "version",
}
GRAPHS = LOWEST | {"graph", "batch", "model", "history", "partitioning", "transforms", "feature_scale"}
LIBRARY = GRAPHS | {"propagation", "models", "loader", "tables", "data"}
# from the lowest layer to the highest: the parts that a part may import besides itself
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "files": {"errors"},
    "ops": {"errors"},
    "task": {"errors"},
    "tunable": set(),
    "version": set(),
    "untrusted": {"errors"},
    "config": {"errors", "tunable", "untrusted"},
    "inference": {"ops"},
    "fixed_point": {"errors", "ops"},
    "checks": {"errors", "ops", "task"},
    "adjacency": {"errors", "ops"},
    "graph": LOWEST,
    "partitioning": LOWEST | {"graph"},
    "transforms": LOWEST | {"graph"},
    "feature_scale": LOWEST | {"graph"},
    "correct_smooth": LOWEST | {"graph"},
    "batch": LOWEST | {"graph"},
    "model": LOWEST | {"graph", "batch"},
    "history": {"errors", "ops", "inference"},
    "propagation": GRAPHS,
    "models": GRAPHS | {"propagation"},
    "loader": GRAPHS,
    "tables": GRAPHS,
    "data": GRAPHS | {"tables"},
    "methods": LIBRARY,
    "training": LOWEST | {"batch", "graph", "model", "history", "propagation"},
    "run": LOWEST | {"batch", "graph", "feature_scale", "model", "history", "training"},
    "reports": {"graph", "task", "errors", "ops", "training"},
    "export": set(),
    "tuning": LIBRARY | {"methods", "training"},
    "distributed": LIBRARY | {"methods", "training", "run"},
    "commands": LIBRARY
    | {"correct_smooth", "methods", "training", "run", "reports", "tuning", "export", "distributed"},
    "cli": {
        "errors",
        "version",
        "config",
        "data",
        "history",
        "partitioning",
        "correct_smooth",
        "methods",
        "run",
        "commands",
    }
    | {"distributed"},
}
# methods of a class that lead to a higher part, which they import when they are called
SHORTCUTS = {"graph": {"tables", "data"}}
# these may import everything
ENTRY_POINTS = {"__init__", "__main__"}


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """Returns the parts of the package that a file imports; names of the package itself count as `__init__`."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            # `from lazygnn import ops` is the module `lazygnn.ops`
            names |= (
                {f"lazygnn.{alias.name}" for alias in node.names} if node.module == "lazygnn" else {str(node.module)}
            )
    tails = [name.split(".")[1:] for name in names if name.split(".")[0] == "lazygnn"]
    return {tail[0] if tail and tail[0] in MAY_IMPORT else "__init__" for tail in tails}


FILES = sorted(path for path in SOURCE.rglob("*.py") if part_of(path) not in ENTRY_POINTS)


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SOURCE)) for path in FILES])
def test_a_file_imports_from_below_alone(path: Path) -> None:
    part = part_of(path)
    assert part in MAY_IMPORT, f"`{part}` is new: add its imports to MAY_IMPORT"
    assert imported_parts(path) <= MAY_IMPORT[part] | SHORTCUTS.get(part, set()) | {part}


def test_the_order_has_no_circle() -> None:
    seen: set[str] = set()
    for part, allowed in MAY_IMPORT.items():
        # the lowest parts may be imported by all; the second loop checks that they import no others
        assert allowed - LOWEST <= seen, f"`{part}` may import a part of a higher layer"
        seen.add(part)
    for part in LOWEST:
        assert MAY_IMPORT[part] <= LOWEST


def test_imports_are_found_in_every_form(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text(
        "import lazygnn.graph\nfrom lazygnn import ops, Graph\n"
        "def f():\n    from lazygnn.data.npz import read_npz\nimport torch, lazygnnish\n"
    )
    assert imported_parts(path) == {"graph", "ops", "data", "__init__"}


def test_importing_the_library_leaves_the_heavy_packages_alone() -> None:
    code = f"import lazygnn, sys; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_public_is_there() -> None:
    assert lazygnn.__all__ == sorted(lazygnn.__all__)
    assert all(hasattr(lazygnn, name) for name in lazygnn.__all__)
