import pytest

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
