import re
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest
from rich.segment import Segment

from lazygnn.run.progress import EpochProgress
from lazygnn.training import EpochReport


def shown(capsys: pytest.CaptureFixture[str], *reports: EpochReport, epochs: int = 10) -> list[str]:
    with EpochProgress("mlp", epochs, metric="macro-f1") as progress:
        for report in reports:
            progress.show(report)
    return capsys.readouterr().err.splitlines()


def test_scores_of_an_earlier_epoch_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    first, second, third = (EpochReport(n, 0.5, 0.1, 0.1, {"val": 0.25} if n == 2 else None) for n in (1, 2, 3))
    assert shown(capsys, first, second, third) == [
        "mlp  epoch 1/10  loss 0.5000  ",
        "mlp  epoch 2/10  loss 0.5000  macro-f1: val 0.2500",
        "mlp  epoch 3/10  loss 0.5000  macro-f1: val 0.2500 (epoch 2)",
    ]


def test_there_are_about_ten_lines(capsys: pytest.CaptureFixture[str]) -> None:
    reports = [EpochReport(n + 1, 0.5, 0.1, 0.1, None) for n in range(95)]
    assert len(shown(capsys, *reports, epochs=95)) == 11


@pytest.mark.parametrize(("quiet", "lines"), [(False, ["mlp  targets are [1, 2]"]), (True, [])])
def test_a_note_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], quiet: bool, lines: list[str]) -> None:
    EpochProgress("mlp", 1, metric="r2", quiet=quiet).note("targets are [1, 2]")
    assert capsys.readouterr().err.splitlines() == lines


def test_elsewhere_than_on_a_terminal_there_are_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    with EpochProgress("mlp", 3, metric="accuracy") as progress:
        progress.note("a note")
        for epoch in (1, 2, 3):
            progress.show(EpochReport(epoch, 0.5, 0.1, 0.1, {"val": 0.25}))
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 4
    assert re.search(r"[^\n\x20-\x7e]", err) is None


class Output:
    """Stands in for the widget that a notebook draws over."""

    drawn = 0

    def __enter__(self) -> "Output":
        Output.drawn += 1
        return self

    def __exit__(self, *_: object) -> None:
        """Has nothing to undo."""

    def clear_output(self, *, wait: bool) -> None:
        """Has nothing to clear."""


def module(name: str, **content: object) -> ModuleType:
    made: Any = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    for attribute, value in content.items():
        setattr(made, attribute, value)
    found: ModuleType = made
    return found


@pytest.mark.parametrize("widgets", [True, False], ids=["with widgets", "without widgets"])
def test_a_notebook_has_a_bar_or_lines(monkeypatch: pytest.MonkeyPatch, widgets: bool) -> None:
    lines: list[str] = []

    def display(segments: list[Segment], text: str) -> None:
        lines.append("".join(segment.text for segment in segments))

    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", display)
    monkeypatch.setattr(Output, "drawn", 0)
    monkeypatch.setitem(sys.modules, "ipywidgets", module("ipywidgets", Output=Output) if widgets else None)
    monkeypatch.setitem(sys.modules, "IPython", module("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module("IPython.display", display=lambda _: None))
    with EpochProgress("mlp", 2, metric="accuracy") as progress:
        assert progress.draws is widgets
        for epoch in (1, 2):
            progress.show(EpochReport(epoch, 0.5, 0.1, 0.1, None))
    printed = [line for line in lines if "epoch 1/2" in line]
    assert (Output.drawn > 0, len(printed)) == (widgets, 0 if widgets else 1)
