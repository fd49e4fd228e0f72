"""Every method that ranks can train learns the same with any number of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lazygnn.config import Config
from lazygnn.data.folder import load_folder, save_folder
from lazygnn.distributed.building import METHODS, build_trainer, check_method, choose_folder_scale, has_parts, share_of
from lazygnn.distributed.group import Ranks
from lazygnn.distributed.trainer import RankTrainer
from lazygnn.errors import ConfigError
from lazygnn.feature_scale import Choice, choose_scale
from lazygnn.methods import build, resolve
from lazygnn.training import infer
from tests.distributed.workers import in_threads

# random numbers are shared by threads, so there are none in training
EPOCHS = 3
COMMON = {"epochs": EPOCHS, "lr": 0.02, "dropout": 0.0, "hidden_channels": 8, "norm": "none"}
OWN: dict[str, dict[str, Any]] = {
    "lazygnn": {"halo_gradients": True},
    "lazygnn-deep": {
        "num_blocks": 2,
        "view_channels": 4,
        "alphas": [0.1, -0.3],
        "beside": ["convolutions", "mlp", "decoupled"],
    },
    "appnp-gas": {"num_layers": 3},
    "gcn-gas": {"num_layers": 3, "normalize_features": True},
    "gcnii-gas": {"num_layers": 3},
    "mlp": {},
}


def config_of(method: str, **more: Any) -> Config:
    parts = {"num_parts": 5, "partition": "contiguous"} if has_parts(method) else {}
    values = COMMON | parts | {"parts_per_step": 3} | OWN[method] | more
    return resolve(method, "mine", values, use_recipe=False)


def trained(config: Config, folder: Path, ranks: Ranks, initial: dict[str, Tensor]) -> tuple[RankTrainer, Tensor]:
    shard = share_of(config, folder, ranks)
    trainer = build_trainer(config, shard, ranks, torch.device("cpu"), folder)
    trainer.model.load_state_dict(initial)
    trainer.run()
    return trainer, infer(trainer.model, trainer.graph)


def initial_weights(config: Config, folder: Path) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return build(config, load_folder(folder)).model.state_dict()


def test_methods_that_ranks_train_on_parts_are_known() -> None:
    assert [method for method in METHODS if not has_parts(method)] == ["mlp"]
    # it has parts, but is not for ranks
    assert not has_parts("cluster-gcn")
    assert not has_parts("unknown")


@pytest.mark.parametrize("method", METHODS)
def test_three_ranks_learn_what_one_learns(method: str, prepared: Path) -> None:
    config = config_of(method)
    initial = initial_weights(config, prepared)
    ((alone, outputs),) = in_threads(1, lambda ranks: trained(config, prepared, ranks, initial))
    found = in_threads(3, lambda ranks: trained(config, prepared, ranks, initial))
    for name, weight in alone.model.state_dict().items():
        assert name == "weights" or not torch.equal(weight, initial[name]), f"`{name}` has not learned"
        for trainer, _ in found:
            torch.testing.assert_close(trainer.model.state_dict()[name], weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.cat([each for _, each in found]), outputs, rtol=1e-3, atol=1e-4)
    # a single process has the same outputs for these weights
    built = build(config, load_folder(prepared))
    built.model.load_state_dict(alone.model.state_dict())
    torch.testing.assert_close(outputs, infer(built.model, built.graph), rtol=1e-3, atol=1e-4)
    sent = sum(trainer.exchange.traffic.halo for trainer, _ in found)
    assert (sent > 0) == has_parts(method)


@pytest.mark.parametrize(("wire", "bytes_of_a_row"), [("float32", 12), ("bfloat16", 6), ("int8", 7)])
def test_rows_are_sent_in_fewer_bits(wire: str, bytes_of_a_row: int, prepared: Path) -> None:
    config = config_of("lazygnn", wire=wire, halo_gradients=False)
    initial = initial_weights(config, prepared)
    found = in_threads(2, lambda ranks: trained(config, prepared, ranks, initial))
    for trainer, _ in found:
        rows = sum(step.plan.sent_to_others(trainer.ranks.rank) for step in trainer.parts.all_steps)
        assert trainer.exchange.traffic.halo == EPOCHS * rows * bytes_of_a_row > 0
    exact = in_threads(1, lambda ranks: trained(config_of("lazygnn", halo_gradients=False), prepared, ranks, initial))
    error = (torch.cat([each for _, each in found]) - exact[0][1]).abs().max()
    assert error < 0.05
    assert wire == "float32" or error > 1e-6


def test_an_exchange_every_third_epoch_sends_a_third(prepared: Path) -> None:
    config = config_of("lazygnn", exchange_every=3, halo_gradients=False)
    initial = initial_weights(config, prepared)
    for trainer, _ in in_threads(2, lambda ranks: trained(config, prepared, ranks, initial)):
        rows = sum(step.plan.sent_to_others(trainer.ranks.rank) for step in trainer.parts.all_steps)
        assert trainer.exchange.traffic.halo == rows * 12 > 0


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("gcn", {}, "several ranks cannot train `gcn`"),
        ("lazygnn", {"halo": "paper", "num_parts": 5}, "`halo` is paper"),
        ("lazygnn", {"loader": "saint"}, "`loader` is saint"),
        ("lazygnn", {"history": "disk", "num_parts": 5}, "`history` is disk"),
        ("gcn-gas", {"parts_per_batch": 2, "num_parts": 5}, "`parts_per_step`"),
    ],
)
def test_what_ranks_cannot_train_is_refused(method: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_method(resolve(method, "mine", values, use_recipe=False))


@pytest.mark.parametrize(("factor", "choice", "scaled"), [(1, "auto", False), (5000, "auto", True), (1, "on", True)])
def test_features_are_scaled_like_those_of_one_process(
    factor: int, choice: Choice, scaled: bool, prepared: Path, tmp_path: Path
) -> None:
    graph = load_folder(prepared)
    assert isinstance(graph.x, Tensor)
    x = graph.x.clone()
    x[:, 0] *= factor
    save_folder(replace(graph, x=x), tmp_path / "graph")
    found = choose_folder_scale(tmp_path / "graph", choice, normalized=False)
    expected = choose_scale(replace(graph, x=x), choice)
    assert (found is not None) == (expected is not None) == scaled
    if found is None or expected is None:
        return
    assert torch.equal(found.scale, expected.scale)
    config = config_of("gcn-gas", normalize_features=False)
    ranks = Ranks()
    shard = share_of(config, tmp_path / "graph", ranks)
    trainer = build_trainer(config, shard, ranks, torch.device("cpu"), tmp_path, found)
    for part in trainer.parts.parts:
        # its own nodes, and those around it
        rows = trainer.parts.batch(part).x
        assert isinstance(rows, Tensor)
        ids = torch.cat((torch.arange(part.start, part.stop), shard.halo[part.slots]))
        torch.testing.assert_close(rows.double(), (x[ids].double() - found.center) / found.scale, rtol=1e-5, atol=1e-5)
