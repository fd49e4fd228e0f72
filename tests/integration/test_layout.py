"""The tests mirror the source: `src/lazygnn/a/b.py` is tested in `tests/a/test_b.py`.

The code of an `__init__.py` is tested in `test_init.py`. Tests that cross modules are in tests/integration.
"""

from pathlib import Path

import pytest

import lazygnn

SOURCE = Path(lazygnn.__file__).parent
TESTS = Path(__file__).resolve().parents[1]
# folders of tests that do not mirror the package
NOT_MIRRORED = {"integration", "experiments", "benchmarks", "common"}

# modules without a file of tests, and the reason
WITHOUT_TESTS = {
    "ops/triton/activation_kernels.py": "launched by activations.py and tested there",
    "ops/triton/history_row_kernels.py": "launched by history_rows.py and tested there",
    "ops/triton/layer_norm_kernels.py": "launched by layer_norm.py and tested there",
    "ops/triton/product_kernels.py": "launched by products.py and tested there",
}
# files of tests without a module, and the reason
WITHOUT_MODULE = {
    "data/test_wordnet_small.py": "tests wordnet-small.npz and the script that builds it",
    "ops/triton/test_interpreter.py": "runs the other tests of its folder in Triton's interpreter",
}


def mirror(module: str) -> str:
    """Returns the file of tests of a module."""
    path = Path(module)
    return (path.parent / f"test_{path.stem.strip('_')}.py").as_posix()


def modules_of(source: Path) -> set[str]:
    """Returns the modules of a package, by their paths in it."""
    return {path.relative_to(source).as_posix() for path in source.rglob("*.py")}


def files_of_tests(tests: Path) -> set[str]:
    """Returns the files of tests in folders that mirror the package."""
    found = {path.relative_to(tests) for path in tests.rglob("test_*.py")}
    return {path.as_posix() for path in found if path.parts[0] not in NOT_MIRRORED}


def without_tests(modules: set[str], tests: set[str]) -> set[str]:
    """Returns the modules without tests; `__init__.py` and `__main__.py` need none."""
    return {module for module in modules if not Path(module).stem.startswith("__") and mirror(module) not in tests}


def without_module(modules: set[str], tests: set[str]) -> set[str]:
    """Returns the files of tests without a module."""
    return tests - {mirror(module) for module in modules}


def test_every_module_has_tests() -> None:
    found = without_tests(modules_of(SOURCE), files_of_tests(TESTS))
    assert found == set(WITHOUT_TESTS), (
        "add `tests/<folder>/test_<module>.py`, or remove an exception that is not needed"
    )


def test_every_file_of_tests_has_a_module() -> None:
    found = without_module(modules_of(SOURCE), files_of_tests(TESTS))
    assert found == set(WITHOUT_MODULE), "name the file after its module, or move it to tests/integration"


@pytest.mark.parametrize(
    ("module", "test"),
    [("errors.py", "test_errors.py"), ("a/b.py", "a/test_b.py"), ("a/__init__.py", "a/test_init.py")],
)
def test_a_mirror_has_the_folder_and_the_name_of_its_module(module: str, test: str) -> None:
    assert mirror(module) == test


def test_missing_files_are_found_on_both_sides() -> None:
    modules, tests = {"a/__init__.py", "a/b.py", "c.py"}, {"a/test_init.py", "test_c.py", "test_b.py"}
    assert without_tests(modules, tests) == {"a/b.py"}
    assert without_module(modules, tests) == {"test_b.py"}
