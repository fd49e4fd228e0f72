from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lazygnn import commands
from lazygnn.errors import ConfigError, GraphError
from lazygnn.tuning.trial import Pruned, Subject, run_trial


def test_a_trial_is_the_training_of_its_configuration(
    subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lazygnn.commands.conclusion.plot_curves", lambda *_: None)
    graph, reported = subject.load(), dict[int, float]()

    def report(epoch: int, score: float) -> bool:
        reported[epoch] = score
        return False

    score = run_trial(subject, graph, {"lr": 0.1}, report)
    trained = commands.train(subject.config({"lr": 0.1}, graph), tmp_path / "run", quiet=True)
    assert score == trained["val"] == max(reported.values())
    assert list(reported) == [1, 2, 3, 4]
    assert list(reported.values()) == sorted(reported.values())


def test_a_trial_does_not_see_the_test_nodes(subject: Subject) -> None:
    assert set(subject.load().masks) == {"train", "val"}


def test_a_graph_without_validation_nodes_is_refused(subject: Subject, block_arrays: dict[str, Any]) -> None:
    del block_arrays["val_mask"]
    np.savez(subject.dataset, **block_arrays)
    with pytest.raises(GraphError, match=r"graph `block` has no validation nodes to choose by; give it a `val_mask`"):
        subject.load()


def test_a_trial_ends_where_the_report_says(subject: Subject) -> None:
    epochs: list[int] = []

    def report(epoch: int, score: float) -> bool:
        epochs.append(epoch)
        return epoch == 2

    with pytest.raises(Pruned):
        run_trial(subject, subject.load(), {}, report)
    assert epochs == [1, 2]


def test_the_values_of_the_user_come_first(subject: Subject) -> None:
    graph = subject.load()
    fixed = replace(subject, fixed={"lr": 0.5})
    assert fixed.config({"lr": 0.1, "dropout": 0.1}, graph).trainer.lr == 0.5
    with pytest.raises(ConfigError, match="unknown option `alhpa`"):
        subject.config({"alhpa": 1}, graph)
