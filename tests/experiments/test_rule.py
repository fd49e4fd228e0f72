from collections.abc import Sequence
from typing import Any

import pytest

from experiments import best, rule
from experiments.best import Place
from experiments.depth import CASES
from lazygnn.config import Config
from lazygnn.errors import ConfigError
from lazygnn.graph import Graph
from lazygnn.methods import recipes

PLACE = Place(device="cpu", workers=2)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch, block_graph: Graph) -> list[Config]:
    """Replaces training: a higher learning rate gains 1 and 3 points with seeds 0 and 1, and loses 2 on dblp."""
    configs: list[Config] = []

    def run(_: str, wanted: Sequence[Config], **rest: object) -> list[dict[str, Any] | None]:
        configs.extend(wanted)
        lines: list[dict[str, Any] | None] = []
        for config in wanted:
            higher = config.trainer.lr == 0.01
            gain = -0.02 if config.dataset == "dblp" else (0.01, 0.03)[config.seed]
            lines.append({"metric": config.trainer.metric, "val": 0.5 + higher * gain, "test": 0.9})
            if config.model.dropout == 0.3 and config.seed == 1:  # type: ignore[attr-defined]
                lines[-1] = None
        return lines

    monkeypatch.setattr(best, "run_most", run)
    monkeypatch.setattr(best, "load", lambda *_: block_graph)
    monkeypatch.setattr(recipes, "_SIZES", {})
    return configs


def table(changes: list[str], datasets: list[str], seeds: int = 2, place: Place = PLACE) -> list[list[str]]:
    text = rule.main({"gcn": CASES["gcn"]}, changes, datasets, seeds, place)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]


def test_gains_are_paired_by_seed_and_have_a_standard_error(trained: list[Config]) -> None:
    found = table(["lr=0.01"], ["cora", "dblp"])
    assert found[0] == ["validation", "cora", "dblp", "mean"]
    # gains of 1 and 3 points have a deviation of the root of 2, and a standard error of 1
    assert found[2:] == [
        ["gcn", "50.00 ± 0.00", "50.00 ± 0.00", "50.00"],
        ["gcn, lr=0.01", "+2.00 ± 1.00", "-2.00 ± 0.00", "+0.00"],
    ]
    # a recipe of the authors is not what is changed
    assert {config.trainer.optimizer for config in trained} == {"adamw"}


def test_one_seed_has_no_error_and_a_missing_run_leaves_a_cell_empty(trained: list[Config]) -> None:
    assert table(["lr=0.01 norm=layer"], ["cora"], seeds=1)[3] == ["gcn, lr=0.01 norm=layer", "+1.00", "+1.00"]
    assert {config.model.norm for config in trained} == {"none", "layer"}  # type: ignore[attr-defined]
    assert table(["dropout=0.3"], ["cora", "dblp"])[3] == ["gcn, dropout=0.3", "", "", ""]


def test_a_change_that_a_method_does_not_know_is_refused_before_any_run(trained: list[Config]) -> None:
    with pytest.raises(ConfigError, match=r"method `gcn` has no option `alpha`"):
        table(["lr=0.01", "alpha=0.3"], ["cora"])
    with pytest.raises(ConfigError, match=r"`dropout` is not of the form key=value"):
        table(["dropout"], ["cora"])
    assert not trained


def test_errors_count_as_losses() -> None:
    assert best.validation_gain({"metric": "mae", "val": 0.5}) == -0.5
    assert best.validation_gain({"metric": "accuracy", "val": 0.5}) == 0.5
