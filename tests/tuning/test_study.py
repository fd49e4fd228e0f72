import sys
from pathlib import Path

import pytest

from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.tunable import Choices, Range
from lazygnn.tuning.space import Space
from lazygnn.tuning.study import JOURNAL, Study, Tried, check_pruner, load_optuna

pytest.importorskip("optuna")
SPACE: Space = {"lr": Range(1e-4, 0.1, log=True), "depth": Range(1, 4), "norm": Choices(("batch", "none"))}


def open_study(folder: Path, pruner: str = "none", epochs: int = 10) -> Study:
    return Study(folder, SPACE, seed=0, pruner=pruner, epochs=epochs)


def test_trials_have_values_of_the_space_and_the_best_score_counts(tmp_path: Path) -> None:
    study = open_study(tmp_path)
    for score in (0.5, 0.75, 0.75):
        asked = study.ask()
        assert 1e-4 <= asked.values["lr"] <= 0.1
        assert asked.values["depth"] in range(1, 5)
        assert asked.values["norm"] in ("batch", "none")
        study.tell(asked.number, score, "complete")
    study.tell(study.ask().number, None, "failed", "the loss is nan")
    study.tell(study.ask().number, None, "pruned")
    assert [trial.outcome for trial in study.tried()] == ["complete"] * 3 + ["failed", "pruned"]
    assert study.tried()[3].reason == "the loss is nan"
    best = study.best()
    assert best is not None
    # of equal ones, the first
    assert (best.number, best.score) == (1, 0.75)


def test_the_first_trial_can_be_given(tmp_path: Path) -> None:
    study = open_study(tmp_path)
    study.begin_with({"lr": 0.01, "depth": 3})
    study.begin_with({"lr": 0.02, "depth": 3})
    asked = study.ask()
    assert (asked.values["lr"], asked.values["depth"]) == (0.01, 3)
    open_study(tmp_path).begin_with({"lr": 0.05})
    assert study.ask().values["lr"] != 0.05


def test_a_search_that_was_killed_takes_up_its_running_trial(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    straight, study = open_study(whole), open_study(killed)
    for one in (straight, study):
        one.tell(one.ask().number, 0.5, "complete")
    expected, running = straight.ask(), study.ask()
    assert running == expected
    study.report(running.number, 1, 0.5)
    # the process ends here, in the middle of a line
    with (killed / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 6, "wor')
    again = open_study(killed)
    assert again.interrupted() == [running]
    assert again.interrupted() == []
    assert not again.report(running.number, 1, 0.5)
    again.tell(running.number, 0.6, "complete")
    assert [(trial.number, trial.score) for trial in again.tried()] == [(0, 0.5), (1, 0.6)]
    straight.tell(expected.number, 0.6, "complete")
    assert again.ask() == straight.ask()


def finish(study: Study, num_trials: int) -> list[Tried]:
    """Runs the trials of a study that are left, with scores that follow from their values, and returns all."""
    study.begin_with({"depth": 3})
    again = study.interrupted()
    while len(study.tried()) < num_trials:
        asked = again.pop() if again else study.ask()
        study.tell(asked.number, asked.values["lr"] * asked.values["depth"], "complete")
    return study.tried()


def test_a_search_that_is_killed_after_any_line_draws_the_same_values(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    # the last trial is drawn by the scores of the ten others
    expected = finish(open_study(tmp_path / "whole"), 11)
    lines = (tmp_path / "whole" / JOURNAL).read_bytes().splitlines(keepends=True)
    # in the first two trials, and in the last two
    for count in [*range(12), *range(len(lines) - 10, len(lines))]:
        killed = tmp_path / f"killed-{count}"
        killed.mkdir()
        (killed / JOURNAL).write_bytes(b"".join(lines[:count]))
        assert finish(open_study(killed), 11) == expected, count


def test_the_second_trial_does_not_repeat_the_first(tmp_path: Path) -> None:
    study = open_study(tmp_path)
    # no value is given, so that all of both trials are drawn
    study.begin_with({})
    first, second = study.ask(), study.ask()
    assert (first.number, second.number) == (0, 1)
    assert first.values["lr"] != second.values["lr"]


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_a_bad_trial_is_pruned_and_a_good_one_is_not(tmp_path: Path, pruner: str) -> None:
    study = open_study(tmp_path, pruner, epochs=9)

    def reach(score: float) -> int:
        """Returns the epoch at which a trial ends."""
        asked = study.ask()
        for epoch in range(1, 10):
            if study.report(asked.number, epoch, score):
                study.tell(asked.number, None, "pruned")
                return epoch
        study.tell(asked.number, score, "complete")
        return 9

    for index in range(12):
        reach(0.5 + 0.001 * index)
    assert reach(0.9) == 9
    assert min(reach(0.1) for _ in range(4)) < 9


def test_a_corrupt_journal_is_a_checkpoint_error(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text("garbage\nmore\n")
    with pytest.raises(CheckpointError, match=r"journal.jsonl` is corrupt: .*; restore it from a backup"):
        open_study(tmp_path)


def test_an_unknown_pruner_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"`pruner` is `best`; choose one of: median, hyperband, none"):
        check_pruner("best")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"`tune` needs Optuna; install `lazygnn\[tune\]`"):
        load_optuna()


def test_a_lower_error_is_better(tmp_path: Path) -> None:
    study = Study(tmp_path, SPACE, seed=0, pruner="none", epochs=1, lower=True)
    for score in (3.0, 1.0, 2.0, 1.0):
        study.tell(study.ask().number, score, "complete")
    best = study.best()
    assert best is not None
    assert (best.number, best.score, study.study.best_value) == (1, 1.0, 1.0)
