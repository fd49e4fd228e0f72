"""The trials of a search in a journal file, by Optuna; a search that was killed continues with the same trials."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.tunable import Choices, Range
from lazygnn.tuning.space import Space

JOURNAL = "journal.jsonl"
PRUNERS = ("median", "hyperband", "none")

Outcome = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class Asked:
    """A trial to run: its number and the values to try."""

    number: int
    values: dict[str, Any]


@dataclass(frozen=True)
class Tried:
    """A trial that has ended; the score of one that was pruned or failed is `None`."""

    number: int
    values: dict[str, Any]
    outcome: Outcome
    score: float | None
    reason: str | None = None


class Study:
    """The trials of one search. A single process uses it, which holds its folder.

    Args:
        folder: Where the journal is.
        space: The values to try.
        seed: Seed of the values that are drawn.
        pruner: A name in `PRUNERS`.
        epochs: Epochs of a trial.
        lower: Whether lower scores are better, as for errors.
    """

    def __init__(self, folder: Path, space: Space, *, seed: int, pruner: str, epochs: int, lower: bool = False) -> None:
        self.optuna = load_optuna()
        self.seed, self.lower = seed, lower
        journal = folder / JOURNAL
        _remove_half_line(journal)
        backend = self.optuna.storages.journal.JournalFileBackend(str(journal), lock_obj=_NoLock())
        try:
            self.study = self.optuna.create_study(
                storage=self.optuna.storages.JournalStorage(backend),
                study_name="tune",
                direction="minimize" if lower else "maximize",
                pruner=_make_pruner(self.optuna, pruner, epochs),
                load_if_exists=True,
            )
        except (ValueError, KeyError) as error:
            raise CheckpointError(f"`{journal}` is corrupt: {error}; restore it from a backup") from error
        self.space = space
        self._running: dict[int, Any] = {}

    def begin_with(self, values: dict[str, Any]) -> None:
        """Makes these values the first trial, unless there is one already; values that it lacks are drawn."""
        if not self.study.get_trials(deepcopy=False):
            self.study.enqueue_trial(values)

    def interrupted(self) -> list[Asked]:
        """Takes up the trials that were running when the search was killed, with their values."""
        running = self.study.get_trials(deepcopy=False, states=(self.optuna.trial.TrialState.RUNNING,))
        return [
            self._take(self.optuna.trial.Trial(self.study, trial._trial_id))
            for trial in running
            if trial.number not in self._running
        ]

    def ask(self) -> Asked:
        """Starts a new trial."""
        return self._take(self.study.ask())

    def report(self, number: int, step: int, score: float) -> bool:
        """Records a score within a trial and returns whether the trial is to end here."""
        trial = self._running[number]
        # a trial that is run again reports the same scores again
        if step not in self.study.get_trials(deepcopy=False)[number].intermediate_values:
            trial.report(score, step)
        return bool(trial.should_prune())

    def tell(self, number: int, score: float | None, outcome: Outcome, reason: str | None = None) -> None:
        """Ends a trial."""
        states = self.optuna.trial.TrialState
        trial = self._running.pop(number)
        if reason is not None:
            trial.set_user_attr("reason", reason)
        state = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[outcome]
        self.study.tell(trial, score if outcome == "complete" else None, state=state)

    def tried(self) -> list[Tried]:
        """Returns the trials that have ended, in the order of their numbers."""
        states = self.optuna.trial.TrialState
        outcomes: dict[Any, Outcome] = {
            states.COMPLETE: "complete",
            states.PRUNED: "pruned",
            states.FAIL: "failed",
        }
        return [
            Tried(
                trial.number,
                dict(trial.params),
                outcomes[trial.state],
                trial.value if trial.state == states.COMPLETE else None,
                trial.user_attrs.get("reason"),
            )
            for trial in self.study.get_trials(deepcopy=False)
            if trial.state in outcomes
        ]

    def best(self) -> Tried | None:
        """Returns the first of the trials with the best score; `None` before one is complete."""
        complete = [
            (-trial.score if self.lower else trial.score, trial) for trial in self.tried() if trial.score is not None
        ]
        return max(complete, key=lambda item: (item[0], -item[1].number))[1] if complete else None

    def _take(self, trial: Any) -> Asked:
        self._running[trial.number] = trial
        return Asked(trial.number, {name: self._draw(trial, name) for name in self.space})

    def _draw(self, trial: Any, name: str) -> Any:
        """Draws a value, or returns the one that the trial has already."""
        # a value is the same after a restart as without one, whatever was drawn before it
        digest = hashlib.blake2b(f"{self.seed} {trial.number} {name}".encode(), digest_size=4).digest()
        self.study.sampler = self.optuna.samplers.TPESampler(seed=int.from_bytes(digest, "little"))
        return _suggest(trial, name, self.space[name])


def load_optuna() -> ModuleType:
    """Imports Optuna, which is optional."""
    try:
        import optuna
        import optuna.storages.journal
    except ImportError as error:
        raise ConfigError("`tune` needs Optuna; install `lazygnn[tune]`") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    module: ModuleType = optuna
    return module


class _NoLock:
    """A lock for the journal, whose folder one process holds already."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


def _remove_half_line(journal: Path) -> None:
    """Removes a last line that a crash has cut off."""
    if journal.is_file():
        content = journal.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with journal.open("r+b") as file:
                file.truncate(len(whole))


def check_pruner(name: str) -> None:
    """Refuses an unknown pruner."""
    if name not in PRUNERS:
        raise ConfigError(f"`pruner` is `{name}`; choose one of: {', '.join(PRUNERS)}")


def _make_pruner(optuna: ModuleType, name: str, epochs: int) -> Any:
    check_pruner(name)
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=epochs // 5)
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=max(epochs // 9, 1), max_resource=max(epochs, 1))
    return optuna.pruners.NopPruner()


def _suggest(trial: Any, name: str, values: Range | Choices) -> Any:
    """Draws a value; a trial that has one already keeps it."""
    if isinstance(values, Choices):
        return trial.suggest_categorical(name, values.values)
    if isinstance(values.low, int) and isinstance(values.high, int):
        return trial.suggest_int(name, values.low, values.high, log=values.log, step=int(values.step or 1))
    return trial.suggest_float(name, values.low, values.high, log=values.log, step=values.step)
