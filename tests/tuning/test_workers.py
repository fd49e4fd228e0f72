from pathlib import Path
from typing import Any

import pytest

from lazygnn.tunable import Choices
from lazygnn.tuning.study import Asked, Study
from lazygnn.tuning.trial import Subject
from lazygnn.tuning.workers import run_here, run_in_workers
from tests import processes

pytest.importorskip("optuna")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path, {"lr": Choices((0.01, 0.1))}, seed=0, pruner="none", epochs=4)


def following(study: Study, count: int) -> Any:
    left = iter(range(count))
    return lambda: study.ask() if next(left, None) is not None else None


def test_a_trial_that_diverges_has_failed_and_the_search_goes_on(study: Study, subject: Subject) -> None:
    asked = study.ask()
    bad = Asked(asked.number, {"lr": 1e30, "input_dropout": 0.0})
    trials = iter([bad, study.ask()])
    assert list(run_here(study, subject, subject.load(), lambda: next(trials, None))) == [0, 1]
    failed, complete = study.tried()
    assert (failed.outcome, complete.outcome) == ("failed", "complete")
    assert "lower `lr`" in str(failed.reason)


class Recorded:
    """Starts processes, and remembers them."""

    def __init__(self) -> None:
        self.context, self.started = processes.context(), list[Any]()
        self.Pipe = self.context.Pipe

    def Process(self, *args: Any, **kwargs: Any) -> Any:
        self.started.append(self.context.Process(*args, **kwargs))
        return self.started[-1]


def test_workers_find_what_this_process_finds_and_one_that_is_killed_fails_its_trial_alone(
    study: Study, subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported, recorded = study.report, Recorded()

    def kill_the_first(number: int, step: int, score: float) -> bool:
        if number == 0:
            recorded.started[0].kill()
            recorded.started[0].join()
        return reported(number, step, score)

    monkeypatch.setattr("lazygnn.tuning.workers.get_context", lambda _: recorded)
    monkeypatch.setattr(study, "report", kill_the_first)
    assert sorted(run_in_workers(study, subject, 2, following(study, 5))) == [0, 1, 2, 3, 4]
    failed, *others = study.tried()
    assert (failed.outcome, failed.reason) == ("failed", "the process of the trial was killed")
    assert [trial.outcome for trial in others] == ["complete"] * 4
    assert not any(process.is_alive() for process in recorded.started)
    list(run_here(study, subject, subject.load(), following(study, 4)))
    scores = [{(trial.values["lr"], trial.score) for trial in part} for part in (others, study.tried()[5:])]
    assert scores[0] & scores[1]
    assert len(scores[0] | scores[1]) == 2
