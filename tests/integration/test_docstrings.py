"""The examples in docstrings run, and the main entry points have one."""

import doctest
import inspect
import logging
from pathlib import Path
from typing import Any

import pytest

import lazygnn

# classes are documented as a whole, except where a method makes them
ENTRY_POINTS: dict[str, Any] = {
    "Graph.from_edges": lazygnn.Graph.from_edges,
    "load_graph": lazygnn.load_graph,
    "resolve": lazygnn.resolve,
    "build": lazygnn.build,
    "Trainer": lazygnn.Trainer,
    "evaluate": lazygnn.evaluate,
    "infer": lazygnn.infer,
    "load_run": lazygnn.load_run,
    "ClusterLoader": lazygnn.ClusterLoader,
    "partition": lazygnn.partition,
    "solve": lazygnn.solve,
    "CorrectAndSmooth": lazygnn.CorrectAndSmooth,
    "LazyGNN": lazygnn.LazyGNN,
}


@pytest.mark.parametrize("name", list(ENTRY_POINTS))
def test_the_example_of_an_entry_point_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.chdir(tmp_path)
    # drawing takes longer than the example
    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: None)
    docstring = inspect.getdoc(ENTRY_POINTS[name])
    # with nothing but what the example imports
    example = doctest.DocTestParser().get_doctest(docstring or "", {}, name, None, 0)
    assert example.examples, f"`{name}` has no example"
    said: list[str] = []
    found = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert found.failed == 0, "".join(said)


def test_no_example_is_left_out() -> None:
    package = Path(lazygnn.__file__).parent
    with_examples = {path for path in package.rglob("*.py") if ">>> " in path.read_text()}
    assert with_examples == {Path(str(inspect.getsourcefile(inspect.unwrap(found)))) for found in ENTRY_POINTS.values()}
