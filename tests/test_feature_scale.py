"""When features are standardized, and to what."""

import logging
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from lazygnn import feature_scale
from lazygnn.errors import CheckpointError, ConfigError
from lazygnn.feature_scale import FeatureScale, are_badly_scaled, choose_scale
from lazygnn.graph import Graph
from lazygnn.methods import build, resolve
from lazygnn.tables.schema import NumberColumn, Schema
from tests.helpers import random_matrix, random_rows

N = 300


def table() -> Tensor:
    """An income, an age, a flag, a constant and a number near 1."""
    x = random_rows(N, 5, 0, torch.float32)
    x[:, 0] = 5e4 + 2e4 * x[:, 0]
    x[:, 1] = 40 + 12 * x[:, 1]
    x[:, 2] = x[:, 2] > 0
    x[:, 3] = 7
    return x


def graph_of(x: Tensor) -> Graph:
    edges, train = np.stack((np.arange(len(x) - 1), np.arange(1, len(x)))), np.arange(len(x)) < len(x) // 2
    return Graph.from_edges(edges, x.numpy(), np.arange(len(x)) % 2, train_mask=train, val_mask=~train)


FEATURES: dict[str, tuple[Tensor, bool]] = {
    "income and age": (table(), True),
    "income alone": (table()[:, :1], True),
    "one column far smaller than another": (random_rows(N, 2, 1) * torch.tensor([1.0, 1e-4]), True),
    "embeddings": (3 * random_rows(N, 8, 2) + 1, False),
    "unequal components": (random_rows(N, 8, 3) * 2.0 ** torch.arange(-2, 6), False),
    "zeros and ones": ((random_rows(N, 6, 4) > 0).double(), False),
    "shares": (torch.softmax(4 * random_rows(N, 6, 6), dim=1) * 1000, False),
    "counts of words": (200.0 * (random_rows(N, 16, 7) > 1) * random_rows(N, 16, 8).abs(), False),
    "a word that most texts have": (
        torch.cat(
            ((200 * random_rows(N, 19, 7)).relu().floor() * (random_rows(N, 19, 8) > 0), torch.ones(N, 1) * 3), 1
        ),
        False,
    ),
    "age beside gains that few persons have": (
        torch.stack(
            (40 + 9 * random_rows(N, 1, 1)[:, 0].clamp(-4, 4), *(5e4 * (random_rows(N, 2, 9) - 1).relu().T)), 1
        ),
        True,
    ),
    "a gain that few persons have, beside flags": (
        torch.cat(((random_rows(N, 12, 4) > 0).float(), 5e4 * (random_rows(N, 1, 9) - 1).relu()), 1),
        True,
    ),
    "a large constant": (torch.cat((random_rows(N, 3, 2), torch.full((N, 1), 20240131.0)), 1), True),
    "a large constant alone": (torch.full((N, 3), 1e6), True),
    "a large constant beside one-hot columns": (
        torch.cat((torch.eye(3)[torch.arange(N) % 3], torch.full((N, 1), 2024.0)), 1),
        True,
    ),
    "constants": (torch.full((N, 3), 7.0), False),
    "no rows": (torch.zeros(0, 3), False),
}


@pytest.mark.parametrize("name", FEATURES)
def test_columns_of_very_different_scales_are_found(name: str) -> None:
    x, badly = FEATURES[name]
    assert are_badly_scaled(x) == badly


def test_sparse_features_are_never_badly_scaled() -> None:
    matrix = random_matrix(20, 4)
    assert not are_badly_scaled(matrix.with_value(1e6 * matrix.value))


def test_a_column_that_is_seen_in_part_is_judged_by_rows_all_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_scale, "_MOST_ROWS", 20)
    x = random_rows(N, 2, 0)
    x[N // 2 :, 1] *= 1e4
    assert are_badly_scaled(x)


def test_numbers_get_mean_zero_and_deviation_one_and_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_scale, "_BLOCK_ROWS", 70)
    graph = graph_of(table())
    scale = FeatureScale.fit(cast(Tensor, graph.x))
    x = cast(Tensor, scale.apply(graph).x)
    numbers = [0, 1, 4]
    torch.testing.assert_close(x[:, numbers].mean(dim=0), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(x[:, numbers].std(dim=0, correction=0), torch.ones(3), rtol=0, atol=1e-5)
    assert torch.equal(x[:, [2, 3]], cast(Tensor, graph.x)[:, [2, 3]])
    assert scale.num_scaled == 3
    assert x.dtype == torch.float32
    read = FeatureScale.read(scale.record(), "features.json")
    assert torch.equal(read.center, scale.center)
    assert torch.equal(read.scale, scale.scale)


def test_a_large_constant_becomes_one() -> None:
    x = torch.cat((table(), torch.tensor([[20240131.0, -500.0]]).expand(N, 2)), 1)
    graph = graph_of(x)
    scaled = cast(Tensor, FeatureScale.fit(cast(Tensor, graph.x)).apply(graph).x)
    assert scaled[:, 3].unique().tolist() == [7]
    torch.testing.assert_close(scaled[:, 5:], torch.tensor([[1.0, -1.0]]).expand(N, 2))


def test_auto_leaves_tables_normalized_rows_and_huge_features_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graph = graph_of(table())
    assert choose_scale(graph, "auto") is not None
    assert choose_scale(graph, "off") is None
    assert choose_scale(graph, "auto", normalized=True) is None
    columns = tuple(NumberColumn(name=f"c{index}", mean=0.0, scale=1.0) for index in range(5))
    imported = replace(graph, schema=Schema(id="id", columns=columns, source="a", destination="b"))
    assert choose_scale(imported, "auto") is None
    assert choose_scale(imported, "on") is not None
    assert not caplog.records
    monkeypatch.setattr(feature_scale, "_MOST_BYTES", 100)
    with caplog.at_level(logging.WARNING):
        assert choose_scale(graph, "auto") is None
    assert "very different scales, but are too many" in caplog.text
    assert choose_scale(graph, "on") is not None


def test_what_cannot_be_standardized_is_refused() -> None:
    graph = graph_of(table())
    sparse = replace(graph, x=random_matrix(N, 5))
    with pytest.raises(ConfigError, match=r"features of `graph` are sparse, and would become dense; set `st"):
        choose_scale(sparse, "on")
    with pytest.raises(ConfigError, match=r"`standardize_features` is on, but `normalize_features` is true"):
        choose_scale(graph, "on", normalized=True)
    scale = FeatureScale.fit(cast(Tensor, graph.x)[:, :4])
    with pytest.raises(ConfigError, match=r"`graph` has 5 features, the scale is that of 4; give a graph with"):
        scale.apply(graph)
    records: list[dict[str, Any]] = [
        {},
        {"center": [0.0], "scale": [0.0]},
        {"center": [0.0], "scale": [1.0, 1.0]},
        {"center": ["a"], "scale": [1.0]},
    ]
    for record in records:
        with pytest.raises(CheckpointError, match=r"`features.json` does not hold the scale of features.*; train"):
            FeatureScale.read(record, "features.json")


@pytest.mark.parametrize("method", ["mlp", "sgc", "lazygnn"])
def test_a_model_is_built_on_scaled_features(method: str) -> None:
    graph = graph_of(table())
    built = build(resolve(method, "mine", {"epochs": 1, "standardize_features": "auto"}), graph)
    assert built.feature_scale is not None
    assert float(cast(Tensor, built.graph.x).abs().max()) < 10
    plain = build(resolve(method, "mine", {"epochs": 1, "standardize_features": "off"}), graph)
    assert plain.feature_scale is None
    assert float(cast(Tensor, plain.graph.x).max()) > 1e4


def test_data_sets_with_a_recipe_keep_their_features(block_graph: Graph) -> None:
    assert resolve("sign", "wordnet").trainer.standardize_features == "off"
    assert resolve("sign", "wordnet", {"standardize_features": "on"}).trainer.standardize_features == "on"
    assert resolve("sign", "mine").trainer.standardize_features == "auto"
    # a file may have the name of a data set by chance
    assert resolve("sign", "cora", graph=block_graph).trainer.standardize_features == "auto"
