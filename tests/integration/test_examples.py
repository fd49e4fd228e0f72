"""Every example runs as a program and learns something."""

import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[str], float]:
    """Runs an example in an empty folder and returns the accuracy that it prints."""

    def accuracy_of(name: str) -> float:
        monkeypatch.chdir(tmp_path)
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        printed = capsys.readouterr().out
        found = re.search(r"test accuracy (\d\.\d+)", printed)
        assert found is not None, printed
        return float(found[1])

    return accuracy_of


def test_a_graph_of_ones_own_beats_its_features(run: Callable[[str], float]) -> None:
    # an MLP on the same features reaches 0.58
    assert run("own_graph.py") > 0.75


def test_lazy_propagation_in_a_pyg_loop_beats_its_features(run: Callable[[str], float]) -> None:
    pytest.importorskip("torch_geometric")
    # without the graph the same layers reach 0.32
    assert run("pyg_loop.py") > 0.65


def test_a_lazy_block_behind_a_pyg_convolution_beats_its_features(run: Callable[[str], float]) -> None:
    pytest.importorskip("torch_geometric")
    # without the graph the same layers reach 0.32
    assert run("lazy_block.py") > 0.65
