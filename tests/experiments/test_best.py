"""Methods set by the rule, by their recipes, and in parts."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from experiments import best
from experiments.best import PARTS, Place, Variant, best_runs, variants
from lazygnn.config import Config
from lazygnn.data import synthetic
from lazygnn.graph import Graph


def test_parts_are_those_of_a_recipe_where_it_has_some(block_graph: Graph) -> None:
    place = Place(device="cpu")

    def parts(method: str, dataset: str, *, use_recipe: bool) -> tuple[int, int]:
        config = place.configure((method, PARTS), dataset, 0, None, Variant(use_recipe=use_recipe))
        return config.model.num_parts, config.model.parts_per_batch  # type: ignore[attr-defined]

    assert parts("appnp-gas", "cora", use_recipe=True) == (4, 2)
    assert parts("appnp-gas", "cora", use_recipe=False) == (40, 10)
    # the recipe of LazyGNN for Cora is for full batch
    assert parts("lazygnn-paper", "cora", use_recipe=True) == (40, 10)


def test_values_of_the_place_override_those_of_a_case() -> None:
    place = Place(device="cpu", also={"epochs": 2})
    config = place.configure(("lazygnn", {"epochs": 5, "beta": 0.2}), "minesweeper", 3)
    assert (config.trainer.epochs, config.trainer.metric, config.seed) == (2, "roc-auc", 3)
    assert config.model.beta == 0.2  # type: ignore[attr-defined]


def test_a_recipe_can_be_the_only_way_to_set_a_method() -> None:
    rule, authors = Variant(), Variant(use_recipe=True)
    further = [Variant(changes=(("num_layers", 2),)), Variant(changes=(("num_layers", 2), ("norm", "batch")))]
    assert variants("gcnii", "cora") == [rule, authors, *further]
    assert variants("gcnii", "cora", recipe_alone=True) == [authors]
    assert variants("gcnii", "minesweeper", recipe_alone=True) == [rule, *further]
    assert variants("gcnii", "cora", rule_alone=True) == [rule]


def test_a_variant_changes_what_the_rule_sets() -> None:
    plentiful = synthetic.block_graph(1000, 3, degree=20, in_channels=2, num_classes=3)
    place = Place(device="cpu")
    found = [place.configure(("gcnii", {}), "mine", 0, plentiful, one) for one in variants("gcnii", "mine")]
    norms = [(config.model.num_layers, config.model.norm) for config in found]  # type: ignore[attr-defined]
    assert norms == [(8, "none"), (2, "none"), (2, "batch")]
    found = [place.configure(("gcn", {}), "mine", 0, plentiful, one) for one in variants("gcn", "mine")]
    assert [config.model.norm for config in found] == ["batch", "layer"]  # type: ignore[attr-defined]


def test_runs_on_a_file_are_stored_by_its_contents(monkeypatch: pytest.MonkeyPatch, block_graph: Graph) -> None:
    stores: list[str] = []

    def run(store: str, configs: Sequence[Config], **rest: object) -> list[None]:
        stores.append(store)
        return [None] * len(configs)

    monkeypatch.setattr(best, "run_most", run)
    other = replace(block_graph, y=(block_graph.y + 1) % 3)
    for graph in (block_graph, other, block_graph):
        monkeypatch.setattr(best, "load", lambda *_, found=graph: found)
        best_runs({"mlp": ("mlp", {})}, ["mine.npz", "dblp"], 1, Place(device="cpu"))
    first, named, second, *rest = stores
    assert named == "depth"
    assert first.startswith("files/mine-")
    assert first != second
    assert rest == ["depth", first, "depth"]
