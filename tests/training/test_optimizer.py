import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from lazygnn.config import TrainerOptions
from lazygnn.models import MLP, Decoupled
from lazygnn.propagation import NoPropagation
from lazygnn.training.optimizer import learning_rate, make_optimizer


@pytest.mark.parametrize("decay_layers", [None, 1, 2])
@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_the_optimizer_is_the_one_asked_for_and_holds_every_weight(
    name: str, kind: Callable[..., Any], decay_layers: int | None
) -> None:
    model = Decoupled(MLP(3, 4, 3, mlp_layers=2), NoPropagation())
    chosen = TrainerOptions(optimizer=name, decay_layers=decay_layers, weight_decay=0.1)
    optimizer = make_optimizer(model.layer_parameters(), chosen)
    assert type(optimizer) is kind
    held = [id(p) for group in optimizer.param_groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())


def test_a_constant_learning_rate_with_a_warm_up() -> None:
    chosen = TrainerOptions(lr=0.4, warmup_epochs=3, epochs=6)
    rates = [learning_rate(chosen, epoch) for epoch in range(6)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_a_cosine_falls_from_the_full_rate_towards_zero() -> None:
    chosen = TrainerOptions(lr=2.0, schedule="cosine", epochs=4)
    rates = [learning_rate(chosen, epoch) for epoch in range(4)]
    assert rates == pytest.approx([2.0, 1 + math.sqrt(0.5), 1.0, 1 - math.sqrt(0.5)])
    warmed = TrainerOptions(lr=2.0, schedule="cosine", epochs=6, warmup_epochs=2)
    assert [learning_rate(warmed, epoch) for epoch in range(6)] == pytest.approx([2 / 3, 4 / 3, *rates])
    assert learning_rate(TrainerOptions(schedule="cosine", epochs=3, warmup_epochs=9), 2) > 0
