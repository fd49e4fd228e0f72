"""Opening histories, their sizes, and finding them in a model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lazygnn.history import NoHistory, Store, named_histories, open_history
from lazygnn.history.codec import Codec
from lazygnn.history.device import DeviceStore
from lazygnn.history.warmstart import WarmStart
from lazygnn.propagation import Drift, Mix

PRODUCTS = (2_449_029, 47)


@pytest.mark.parametrize(
    ("features", "gradients", "dtype", "mebibytes"),
    [
        (Mix(0.5), Mix(0.5), torch.float32, 878),
        (Drift(), None, torch.float32, 878),
        (Drift(), Drift(), torch.float32, 1756),
        (Mix(0.5), Mix(0.5), torch.bfloat16, 439),
        (Drift(), None, torch.int8, 238),
    ],
)
def test_sizes_on_products(
    tmp_path: Path, features: WarmStart, gradients: WarmStart | None, dtype: torch.dtype, mebibytes: int
) -> None:
    """Table 2 of the paper has 878 MiB; sparse files weigh as much and cost nothing."""
    starts = {"features": features} | ({} if gradients is None else {"gradients": gradients})
    histories = [
        open_history(*PRODUCTS, start, tier="disk", dtype=dtype, folder=tmp_path, name=name)
        for name, start in starts.items()
    ]
    assert round(sum(history.num_bytes for history in histories) / 2**20) == mebibytes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_nodes": 0}, "`num_nodes` must be at least 1, got 0"),
        ({"num_nodes": "3"}, "`num_nodes` is '3', of type str; give a whole number, such as `graph.num_nodes`"),
        ({"channels": -1}, "`channels` must be at least 1, got -1"),
        ({"tier": "tape"}, "unknown tier `tape`; choose one of: device, host, pinned, disk"),
        ({"tier": "disk"}, "a history on disk needs a `folder` for its files"),
        ({"name": "a/b"}, "`name` must be a plain file name without folders, got `a/b`"),
        ({"halo_inputs": True}, r"`halo_inputs` needs stored inputs, Mix\(beta=0\.5\) stores none; use `Drift\("),
        ({"dtype": torch.int16}, r"`dtype` of a history must be one of torch\.float32, .*, got torch\.int16"),
        ({"compute_dtype": torch.int8}, r"`compute_dtype` must be a floating-point type, got torch\.int8"),
    ],
)
def test_impossible_values_are_named(changes: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"num_nodes": 3, "channels": 2, "start": Mix(0.5)} | changes
    with pytest.raises(ValueError, match=message):
        open_history(**options)


def test_inputs_of_the_halo_are_read_on_request_and_cost_no_memory() -> None:
    plain, more = (open_history(3, 2, Drift(), halo_inputs=asked) for asked in (False, True))
    assert (plain.halo_inputs, more.halo_inputs) == (False, True)
    assert plain.num_bytes == more.num_bytes


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = open_history(2, 1, Drift())
        self.gradients = NoHistory()


class Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.propagation = Inner()
        self.layers = [open_history(2, 1, Mix(0.5)), NoHistory(), open_history(2, 1, Mix(0.5))]
        self.again = self.layers[0]
        self.width = 3


def test_histories_are_found_by_name() -> None:
    model = Layered()
    found = named_histories(nn.Sequential(nn.Linear(1, 1), model))
    assert list(found) == ["1.layers.0", "1.layers.2", "1.propagation.features"]
    assert found["1.propagation.features"] is model.propagation.features
    assert list(named_histories(model)) == ["layers.0", "layers.2", "propagation.features"]
    assert named_histories(nn.Linear(1, 1)) == {}


def test_moving_a_model_does_not_move_its_histories() -> None:
    model = Layered().to(torch.float64)
    (history, *_) = named_histories(model).values()
    assert history.values.read(torch.arange(2)).dtype == torch.float32
    assert model.state_dict() == {}


def test_stores_can_be_made_elsewhere() -> None:
    made: list[tuple[int, bool]] = []

    def make_store(codec: Codec, channels: int, with_halo: bool) -> Store:
        made.append((channels, with_halo))
        return DeviceStore({"rows": torch.zeros(5, channels)}, codec, torch.device("cpu"))

    history = open_history(3, 2, Drift(), make_store=make_store)
    # a pass reads the inputs of its targets alone
    assert made == [(2, True), (2, False)]
    assert history.values.num_rows == 5
    open_history(3, 2, Drift(), halo_inputs=True, make_store=make_store)
    assert made[2:] == [(2, True), (2, True)]
